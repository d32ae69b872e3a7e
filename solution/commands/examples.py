"""The groups of commands in `fastslow --help`, and examples of each command."""

import typer

GROUPS = {
    "Look": ("check", "inspect", "features", "module", "experiments", "runs", "explain"),
    "Train": ("data", "prepare", "demo", "run", "train", "tune"),
    "Use": ("rank", "choose", "collect", "optimize", "pack", "onnx"),
    "Judge": ("ensemble", "compare", "report", "verify"),
    "Submit": ("doctor", "submit", "scores", "leaderboard", "kernels"),
}
EXAMPLES = {
    "check": ("fastslow check data", "fastslow check stores/data"),
    "inspect": (
        "fastslow inspect graph.npz --collection tile:xla",
        "fastslow inspect a/tile/xla/train/b.npz",
        "fastslow inspect stores/data --graph b",
        "fastslow inspect data --picture pictures",
    ),
    "features": (
        "fastslow features tile:xla",
        "fastslow features tile:xla --data data --out table.parquet",
    ),
    "module": ("fastslow module program.pb", "fastslow module program.pb --to programs"),
    "experiments": (
        "fastslow experiments",
        "fastslow experiments --all",
        "fastslow run --experiment tile_gnn_001",
    ),
    "runs": ("fastslow runs", "fastslow runs elsewhere/runs"),
    "explain": (
        "fastslow explain tile_lightgbm_001 bmm_020",
        "fastslow explain tile_lightgbm_001 bmm_020 --config 3",
    ),
    "data": ("fastslow data", "fastslow data --collection layout:xla:random"),
    "prepare": ("fastslow prepare data", "fastslow prepare data --whole --out stores/whole"),
    "demo": ("fastslow demo",),
    "run": (
        "fastslow run data",
        "fastslow run data --estimate",
        "fastslow run data --experiment my_model.py --collection tile:xla",
    ),
    "train": ("fastslow train tile_gnn_001", "fastslow train my_model.py --collection tile:xla"),
    "tune": (
        "fastslow tune tile_lightgbm_001 --trials 25",
        "fastslow tune layout_lightgbm_001 --sampler random",
    ),
    "ensemble": (
        "fastslow ensemble mean_rank_001 --run runs/data",
        "fastslow ensemble --search --out found.toml",
    ),
    "compare": (
        "fastslow compare layout_gnn_001 layout_lightgbm_001",
        "fastslow compare found.toml z_score_001",
    ),
    "rank": (
        "fastslow rank program.npz",
        "fastslow rank program.pb --configs 200 --run runs/data --csv order.csv",
    ),
    "choose": (
        "fastslow choose my_program.py --measure 24",
        "fastslow choose my_product.py --over tiles --minutes 2",
        "fastslow choose a/tile/xla/train/b.npz --replay",
    ),
    "optimize": (
        "fastslow optimize program.pb --tasks fusion,placement,schedule --devices 4",
        "fastslow optimize rnnlm-2 --machine v100+p100 --timeline rnnlm.png",
    ),
    "pack": (
        "fastslow pack runs/data --out mine.zip",
        "fastslow pack runs/data --out small --distill",
    ),
    "onnx": ("fastslow onnx students", "fastslow onnx students --with small.zip"),
    "report": ("fastslow report --run runs/data", "fastslow report --recipe mean_rank_001"),
    "verify": ("fastslow verify runs/data/submission.csv --run runs/data",),
    "doctor": ("fastslow doctor",),
    "submit": (
        "fastslow submit --run runs/data --dry-run",
        "fastslow submit z_score_001 --run runs/data",
    ),
    "scores": ("fastslow scores",),
    "leaderboard": ("fastslow leaderboard",),
}


def arrange(app: typer.Typer) -> None:
    """Put every command of the app into its help group; a single command also shows examples."""
    panels = {name: panel for panel, names in GROUPS.items() for name in names}
    for group in app.registered_groups:
        if group.typer_instance is None:
            continue
        if name := group.typer_instance.info.name:  # the group has subcommands
            group.rich_help_panel = panels[name]
            continue
        for command in group.typer_instance.registered_commands:
            name = command.name or getattr(command.callback, "__name__", "")
            if name in panels:
                command.rich_help_panel = panels[name]
                command.epilog = "\n\n".join(["Examples:", *(f"  {e}" for e in EXAMPLES[name])])
