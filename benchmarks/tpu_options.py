"""Measure which public compile options of a TPU change a program's estimate, and by how much.

    python -m benchmarks.tpu_options --target tpu:v5e --programs 2
    python -m benchmarks.tpu_options --programs 0 --file one.py another.py

Each value is compiled alone for some programs of each family, and its estimate divided by the
default's. The names are those that MaxText, axlearn, Saxml and torch_xla publish for a single chip;
names unknown to this compiler are reported. With the extra `tpu`.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from solution.collecting.families import FAMILIES, write_programs
from solution.collecting.program_space import OPTIONS
from solution.collecting.target import parse_target
from solution.collecting.tpu.estimator import Estimator
from solution.collecting.tpu.space import NAMES, make_tpu_space, read_choice
from solution.domain.vocabulary import TPU_OPTION_CHOICES
from solution.programs.child import Child, Limits
from solution.programs.program import read_programs
from solution.system.terminal import say

# By the compiler's name: the values to try beside those of TPU_OPTION_CHOICES.
OTHERS = {
    "xla_tpu_rwb_fusion": ("off",),
    "xla_tpu_nested_dot_fusion": ("on", "off"),
    "xla_tpu_layout_use_dot_grouping": ("off",),
    "xla_tpu_reduce_loop_fusion_dup_with_unfusable_user": ("off",),
    "xla_tpu_scavenge_vmem_for_fusions": ("off",),
    "xla_tpu_enable_aggressive_broadcast_priority_update": ("off",),
    "xla_tpu_enable_vmem_to_vmem_dmas": ("off",),
    "xla_tpu_enable_aggressive_loop_fusion_layout_opt": ("on",),
    "xla_tpu_enable_latency_hiding_scheduler": ("off",),
    "xla_tpu_enable_all_experimental_scheduler_features": ("on",),
    "xla_tpu_memory_bound_loop_optimizer_options": ("enabled:true", "enabled:false"),
    "xla_tpu_bf16_emission_mode": ("NATIVE_EMISSION",),
    "xla_tpu_nd_short_transfer_max_chunks": ("2048",),
    "xla_tpu_copy_fusion_pad_unpad_ratio": ("0", "240"),
    "xla_tpu_licm_size_inflation_ratio": ("1",),
    "xla_tpu_vector_load_fusion_window": ("644",),
    "xla_tpu_vector_store_fusion_window": ("1228",),
    "xla_tpu_msa_inefficient_use_to_copy_ratio": ("0",),
    "xla_tpu_alternate_memory_benefit_scaling_factor_for_large_buffers": ("NO_SCALE",),
    "xla_tpu_use_enhanced_launch_barrier": ("on",),
    "xla_tpu_aggressive_opt_barrier_removal": ("ENABLED",),
    "xla_jf_conv_input_fusion": ("off",),
    "xla_jf_rematerialization_percent_shared_memory_limit": ("10000",),
    "xla_vf_vmem_max_outstanding_prefetches": ("0", "131"),
    "xla_latency_hiding_scheduler_rerun": ("2",),
    "xla_memory_scheduler": ("kBrkga",),
}


def main() -> None:
    """Estimate, and print a row per value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="tpu:v5e")
    parser.add_argument("--programs", type=int, default=2, help="of each family")
    parser.add_argument("--file", type=Path, nargs="*", default=[], help="other programs")
    options = parser.parse_args()
    collected = [(NAMES[name], choices[1:]) for name, choices in TPU_OPTION_CHOICES.items()]
    with (
        tempfile.TemporaryDirectory() as folder,
        Child(Limits()) as child,
        Estimator(parse_target(options.target), Limits(600, 8192)) as estimator,
    ):
        families = [family for names in FAMILIES.values() for family in names]
        paths = [
            path
            for family in families
            for path in write_programs(Path(folder), family, options.programs)
        ]
        modules = [
            make_tpu_space(program, OPTIONS).unasked
            for path in [*paths, *options.file]
            for program in read_programs(path, child, platform="tpu")
        ]
        bases = [estimator.estimate(module).nanoseconds for module in modules]
        say(f"{options.target}, {len(modules)} programs: estimate over the default's\n")
        say("| option | choice | changed | smallest | largest | refused |")
        say("|---|---|---|---|---|---|")
        for name, choices in (*collected, *OTHERS.items()):
            for choice in choices:
                _show(estimator, modules, bases, name, choice)


def _show(
    estimator: Estimator,
    modules: list[bytes],
    bases: list[float | None],
    name: str,
    choice: str,
) -> None:
    ratios: list[float] = []
    refused: list[str] = []
    for module, base in zip(modules, bases, strict=True):
        if base is None:
            continue
        answer = estimator.estimate(module, [(name, read_choice(choice))])
        if answer.nanoseconds is None:
            refused.append(" ".join(answer.refused.split())[:90])
            if "No such" in answer.refused or "nknown" in answer.refused:
                break  # the compiler would reject it for every program
        else:
            ratios.append(answer.nanoseconds / base)
    changed = sum(abs(ratio - 1) > 1e-6 for ratio in ratios)
    ends = f"{np.min(ratios):.3f} | {np.max(ratios):.3f}" if ratios else "|"
    told = f"{len(refused)}: {refused[0]}" if refused else ""
    say(f"| {name} | {choice} | {changed} of {len(ratios)} | {ends} | {told} |")


if __name__ == "__main__":
    main()
