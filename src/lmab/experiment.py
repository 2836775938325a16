"""Experiments: the studies of the paper as data, which are run, stored, resumed, analysed and drawn."""

from .paper.experiment.analysis import Difference as Difference
from .paper.experiment.analysis import compare as compare
from .paper.experiment.analysis import wanted as wanted
from .paper.experiment.methods import Contender as Contender
from .paper.experiment.methods import Learning as Learning
from .paper.experiment.methods import Measurement as Measurement
from .paper.experiment.methods import Setting as Setting
from .paper.experiment.methods import Trial as Trial
from .paper.experiment.methods import typed as typed
from .paper.experiment.page import Table as Table
from .paper.experiment.page import page as page
from .paper.experiment.page import tables as tables
from .paper.experiment.plots import draw as draw
from .paper.experiment.store import Row as Row
from .paper.experiment.store import RowStore as RowStore
from .paper.experiment.store import pending as pending
from .paper.experiment.store import read_table as read_table
from .paper.experiment.store import run_all as run_all
from .paper.experiment.store import write_table as write_table
from .paper.experiment.studies import STUDIES as STUDIES
from .paper.experiment.studies import Cell as Cell
from .paper.experiment.studies import Panel as Panel
from .paper.experiment.studies import Study as Study
