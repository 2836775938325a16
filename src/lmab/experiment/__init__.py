"""Experiments: the paper's studies and ours as data, which are run, stored, resumed, analysed and drawn."""

from .analysis import wanted as wanted
from .page import page as page
from .plots import draw as draw
from .runner import pending as pending
from .runner import run_all as run_all
from .store import Row as Row
from .store import Store as Store
from .store import read_table as read_table
from .store import write_table as write_table
from .studies import STUDIES as STUDIES
from .study import Study as Study
from .tables import Table as Table
from .tables import tables as tables
