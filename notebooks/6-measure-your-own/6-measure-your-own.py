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
# The models that come with the package have learned from other programs than yours. Here programs
# of one kind are compiled and timed in many layouts; the last ones are kept aside, the others are
# added to the training data; and both models rank the programs that were kept aside.
#
# Needs jax, which Kaggle's image has; elsewhere, in the project's folder,
# `pip install -c constraints.txt -e ".[collect]"`. Give a folder of your own python files as
# `PROGRAMS` (how they look: the cell below prints one), or let some of the kind `FAMILY` be drawn.
# What was timed stays timed where the notebook is stopped.

# %% tags=["parameters"]
PROGRAMS = ""  # a folder of python files with a `program` and its `arguments`; empty: drawn ones
FAMILY = "transformer"  # or convnet, mlp, gnn, mixer, recurrent: what is drawn
COLLECTION = "layout:nlp:random"  # where they belong; the last word is the search
COUNT = 10  # programs that are drawn
HELD_OUT = 3  # the last ones, which are not learned from
CONFIGS = 60  # layouts of each program
MINUTES = 15.0  # of compiling and timing, for all of them
KEEP_FLAT = False  # also programs whose timings say nothing of the order
EXPERIMENTS = "layout_*,!*lightgbm*"  # patterns of what is trained
NUM_FOLDS = 5
LIMIT = False  # a quick look: few graphs, short trainings
REPLACE = False  # train afresh, where other programs were learned from before
PUSH = ""  # the key of the push, and the commit that was pushed; a push writes both
COMMIT = ""

# %% [markdown]
# On Kaggle the project comes from the attached dataset of wheels; elsewhere it is there already.

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
from solution.collecting.records import Place
from solution.collecting.report import show_finished
from solution.collecting.session import collect_programs
from solution.serving.comparison import show_rankings
from solution.sessions.attached import add_to_sample
from solution.sessions.session import Session
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
# Each layout's result is compared with that of the program as it is; timings are interleaved, on
# one core. *Repeat tau*, of two halves of the timings, is about what a perfect model could reach.

# %%
_, source, search = COLLECTION.split(":")
place = Place(session.output / "measured", COLLECTION, "train")
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
# The bundled sample and the programs; those that were kept aside are in no training. The files are
# like the competition's, so what holds here holds for `fastslow run FOLDER`.

# %%
data = add_to_sample(learned, place.folder, session.output / "data")
trained = train_session(
    session,
    Share(EXPERIMENTS, f"layout:{source}:*", packed="folds"),
    data=data,
    num_folds=NUM_FOLDS,
    limit=LIMIT,
    replace=REPLACE,
)

# %% [markdown]
# ## The programs that were kept aside, ranked by both
# Kendall's tau between the ranking and the timings: 1 is their order, 0 is chance. And how much
# longer than the fastest of all takes the fastest of the first five that are named.

# %%
if trained.bundle:  # otherwise there is no comparison yet, and the last line says what is missing
    rankings = {
        "the package's models": load_bundle(),
        "yours, added": load_bundle(trained.bundle),
    }
    graphs = [read_graph(path, COLLECTION) for path in held_out]
    output.print(show_rankings(rankings, graphs))

# %% [markdown]
# The bundle ranks other programs of the kind, with nothing timed: `fastslow rank FILE --with`
# it, or `load_bundle(path).rank("program.npz")`.

# %%
if trained.bundle:
    say(load_bundle(trained.bundle).describe())
session.finish(trained.missing)
