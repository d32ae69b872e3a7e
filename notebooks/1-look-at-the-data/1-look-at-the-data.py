# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1. Look at the data
#
# Each graph is a tensor program with many candidate configurations; the job is to rank them from
# fastest to slowest. This notebook shows a few graphs of each collection: the programs, the spread
# and the noise of the runtimes, and how the configurations influence them.
#
# The data is the attached competition, or `data/`, or the bundled sample. **The outputs on the web
# show the sample: CPU timings, not TpuGraphs.**

# %% tags=["parameters"]
GRAPHS = 30  # labelled graphs of each collection, spread evenly over their names
PUSH = ""  # key of the push; a push sets it and the commit
COMMIT = ""

# %% [markdown]
# On Kaggle the project is installed from the attached dataset of wheels.

# %%
import os
import runpy
from glob import glob

inputs = os.environ.get("FASTSLOW_INPUT") or "/kaggle/input"
for script in glob(f"{inputs}/**/fastslow_install.py", recursive=True)[:1]:
    runpy.run_path(script, init_globals={"COMMIT": COMMIT}, run_name="__main__")

# %%
import numpy as np

from solution.analysis import data_pictures as pictures
from solution.analysis.data_check import check_files
from solution.analysis.graph_picture import make_figure
from solution.analysis.graph_tables import show_summaries
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import NAMES
from solution.features.preparation import repair_padding
from solution.sessions.session import Session
from solution.system.terminal import output

# %matplotlib inline

# %%
session = Session.begin("1-look-at-the-data", PUSH)
labelled = {name: [] for name in NAMES}
for file in find_files(session.find_data(prepared=False)):
    if file.split != "test":
        labelled[file.collection.name].append(file)
picked = {n: np.unique(np.linspace(0, len(f) - 1, GRAPHS).astype(int)) for n, f in labelled.items()}
chosen = [files[index] for name, files in labelled.items() if files for index in picked[name]]
summaries, defects, _ = check_files(chosen)
assert not defects, defects
output.print(show_summaries(summaries))

# %%
graphs = [repair_padding(read_graph(file.path, file.collection)) for file in chosen]

# %% [markdown]
# ## One program
# Operands are left of their consumers. The circles mark what can be configured: convolutions,
# dots and reshapes.

# %%
layout = [graph for graph in graphs if graph.collection.kind == "layout"]
sizes = np.array([graph.num_nodes for graph in layout])
example = layout[np.abs(sizes - 150).argmin()]  # large enough to be real, small enough to be read
make_figure(example)

# %% [markdown]
# ## Runtimes
# How much slower than the fastest each configuration is. Where a line is flat, the order depends
# on noise and hardly matters.

# %%
pictures.draw_runtimes(graphs)

# %% [markdown]
# ## Duplicates and noise
# Equal configurations were timed more than once in some collections (44% of the real
# layout:xla:default). The differences of their runtimes are noise, which no model can predict.

# %%
pictures.draw_noise(summaries)

# %% [markdown]
# ## Configurations inside a graph
# The two directions in which the configurations of one graph differ most (principal components of
# its layouts, one column for each node, slot and value). Where colours are sorted, a linear model
# would be enough.

# %%
pictures.draw_configurations(example)

# %% [markdown]
# ## Configurations across graphs
# The same with columns that all graphs of a collection share. If the graphs are separate clusters,
# a model must not compare configurations of different graphs: ranks are taken inside each graph.

# %%
pictures.draw_across(graphs)

# %% [markdown]
# ## The violation ratio
# A node violates when its largest dimension is not the minor-most one of its layout. The share of
# such nodes is a rule of thumb for slow configurations. This is how well it ranks alone.

# %%
pictures.draw_violations(graphs)

# %% [markdown]
# ## Runtime and operations
# Slow programs, and the operations that they consist of.

# %%
pictures.draw_opcodes(graphs)

# %% [markdown]
# ## What pruning keeps
# Configurations change few nodes. The models keep these nodes and their neighbours; the others are
# the same for every configuration.

# %%
pictures.draw_pruning(graphs)

# %%
session.finish()
