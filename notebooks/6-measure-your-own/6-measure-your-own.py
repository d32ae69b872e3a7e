# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Measure your own programs, learn from them, rank the next one
#
# The packaged models have not learned from your programs. This notebook compiles and times programs
# of one kind in many layouts, holds out the last ones, and adds the others to the training data.
# Then both models, the packaged ones and the new ones, rank the held-out programs.
#
# Needs jax, which Kaggle's image has; elsewhere, in the project's folder,
# `pip install -c constraints.txt -e ".[collect]"`. Give a folder of Python files as `PROGRAMS` (a
# cell below prints an example), or draw random programs of the kind `FAMILY`. If the notebook is
# stopped, finished timings are kept.

# %% tags=["parameters"]
PROGRAMS = ""  # a folder of python files with a `program` and its `arguments`; empty: drawn ones
FAMILY = "transformer"  # kind of drawn programs; or convnet, mlp, gnn, mixer, recurrent
COLLECTION = "layout:nlp:random"  # collection of the programs; its last word is the search
COUNT = 10  # programs that are drawn
HELD_OUT = 3  # number of programs that are not trained on
CONFIGS = 60  # layouts of each program
MINUTES = 15.0  # for compiling and timing all programs
KEEP_FLAT = False  # keep programs whose configurations take equally long
RECIPE = "z_score_001"  # its members are trained; those of "best" take three times as long
EXPERIMENTS = "layout_*,!*lightgbm*"  # patterns of the recipe's members
NUM_FOLDS = 5
LIMIT = False  # a smoke run: few graphs, short trainings
REPLACE = False  # train afresh if the training programs have changed
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
from functools import partial
from pathlib import Path

from solution import load_bundle, read_graph
from solution.collecting.collect import Settings
from solution.collecting.families import write_programs
from solution.collecting.records import Destination
from solution.collecting.report import show_finished
from solution.collecting.session import collect_programs
from solution.serving.comparison import show_rankings
from solution.sessions.session import Session, add_to_sample
from solution.sessions.train_session import Share, train_session
from solution.system.errors import InputError
from solution.system.terminal import output, say

session = Session.begin("6-measure-your-own", PUSH)

# %% [markdown]
# ## The programs

# %%
folder = Path(PROGRAMS) if PROGRAMS else session.output / "programs"
if not PROGRAMS:
    write_programs(folder, FAMILY, COUNT)
programs = sorted(folder.glob("*.py"))
say(f"{len(programs)} programs, such as {programs[0].name}:\n\n{programs[0].read_text()}")

# %% [markdown]
# ## Compiled and timed
# Each layout must give the same result as the unchanged program; timings are interleaved, on one
# core. *Repeat tau*, between two halves of the timings, is about the score of a perfect model.

# %%
_, source, search = COLLECTION.split(":")
place = Destination(session.output / "measured", COLLECTION, "train")
settings = Settings(configs=CONFIGS, keep_flat=KEEP_FLAT)
make_space = partial(settings.target.make_space, kind="layouts", varies_fastest=search != "random")
finished = collect_programs(programs, make_space, place, settings, MINUTES)
output.print(show_finished(COLLECTION, finished))
measured = [place.folder / one.state["npz"] for one in finished if one.state.get("npz")]
learned, held_out = measured[:-HELD_OUT], measured[-HELD_OUT:]
if not learned:
    raise InputError(
        f"Expected timings of more than {HELD_OUT} programs, found {len(measured)}: give more "
        "MINUTES or other programs, or set KEEP_FLAT."
    )
say(f"Learned from: {len(learned)} programs. Kept aside: {', '.join(p.stem for p in held_out)}.")

# %% [markdown]
# ## Added to the training data
# The bundled sample and the programs, without the held-out ones. The files have the competition's
# format, so `fastslow run FOLDER` can train on them as well.

# %%
data = add_to_sample(learned, place.folder, session.output / "data")
trained = train_session(
    session,
    Share(EXPERIMENTS, f"layout:{source}:*", packed="folds", recipe=RECIPE),
    data=data,
    num_folds=NUM_FOLDS,
    limit=LIMIT,
    replace=REPLACE,
)

# %% [markdown]
# ## The held-out programs, ranked by both
# Kendall's tau between ranking and timings: 1 is the timings' order, 0 is chance. Then, how much
# longer the fastest of the first five configurations takes than the fastest of all.

# %%
if trained.bundle:  # otherwise there is no comparison yet, and the last line says what is missing
    rankings = {
        "the package's models": load_bundle(),
        "yours, added": load_bundle(trained.bundle),
    }
    graphs = [read_graph(path, COLLECTION) for path in held_out]
    output.print(show_rankings(rankings, graphs))

# %% [markdown]
# The bundle ranks other programs of this kind without timing them: `fastslow rank FILE --with
# bundle.zip`, or `load_bundle(path).rank("program.npz")`.

# %%
if trained.bundle:
    say(load_bundle(trained.bundle).describe())
session.finish(trained.missing)
