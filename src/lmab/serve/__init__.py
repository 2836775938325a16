"""The service: decides for live sessions, keeps every decision with its probability, and is refitted from them."""

from .app import make_app as make_app
from .demo import play_demo as play_demo
from .problems import Problem as Problem
from .refit import refit as refit
from .run import Options as Options
from .run import run as run
from .service import Service as Service
from .settings import Settings as Settings
from .stores import open_store as open_store
from .versions import Defaults as Defaults
from .wishes import Night as Night
from .wishes import Wishes as Wishes
