"""Experiments: the paper's studies and ours as data, which are run, stored, resumed, analysed and drawn."""

from .analysis import wanted as wanted
from .methods import Contender as Contender
from .methods import Learning as Learning
from .methods import Measurement as Measurement
from .methods import Setting as Setting
from .methods import Trial as Trial
from .methods import typed as typed
from .page import Table as Table
from .page import page as page
from .page import tables as tables
from .plots import draw as draw
from .store import Row as Row
from .store import RowStore as RowStore
from .store import pending as pending
from .store import read_table as read_table
from .store import run_all as run_all
from .store import write_table as write_table
from .studies import STUDIES as STUDIES
from .studies import Cell as Cell
from .studies import Panel as Panel
from .studies import Study as Study
