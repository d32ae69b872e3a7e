"""List every column of the tables that rankers learn from, with name, unit and reason."""

from solution.features.column import Feature
from solution.features.layout import layout_table
from solution.features.tile import tile_table

FEATURES: dict[str, tuple[Feature, ...]] = {
    "layout": layout_table.FEATURES,
    "tile": tile_table.FEATURES,
}
