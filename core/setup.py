"""Builds the extension module `penstock_core`."""

import sys

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "penstock_core",
            # A product and a sum in one step are rounded once, in Python twice. Compilers of Windows do not join them.
            extra_compile_args=[] if sys.platform == "win32" else ["-ffp-contract=off"],
            sources=[
                "src/module.c",
                "src/anchors.c",
                "src/beside.c",
                "src/cutting.c",
                "src/equality.c",
                "src/greedy.c",
                "src/sharing.c",
                "src/paths.c",
                "src/scoring.c",
                "src/scoring_calls.c",
                "src/values.c",
                "src/words.c",
            ],
            depends=[
                "src/anchors.h",
                "src/arrays.h",
                "src/beside.h",
                "src/characters.h",
                "src/cutting.h",
                "src/equality.h",
                "src/greedy.h",
                "src/sharing.h",
                "src/paths.h",
                "src/rows.h",
                "src/scoring.h",
                "src/scoring_calls.h",
                "src/values.h",
                "src/words.h",
            ],
        )
    ]
)
