"""The service: decides for live sessions, keeps every decision with its probability, and is refitted from them."""

from .app import make_app as make_app
from .export import OtherStore as OtherStore
from .logs import configure_logs as configure_logs
from .messages import Problem as Problem
from .refit import RefitOptions as RefitOptions
from .refit import RefitResult as RefitResult
from .refit import refit as refit
from .run import Options as Options
from .run import check_store as check_store
from .run import lines_of as lines_of
from .run import run as run
from .run import server as server
from .service import Service as Service
from .service import Settings as Settings
from .stores import open_store as open_store
from .stores import without_secrets as without_secrets
from .versions import Defaults as Defaults
