"""Every column of the tables that rankers learn from: its name, its unit, and why it is there."""

from solution.domain.collection import Collection
from solution.features import layout_table, tile_table
from solution.features.feature import Feature

FEATURES: dict[str, tuple[Feature, ...]] = {
    "layout": layout_table.FEATURES,
    "tile": tile_table.FEATURES,
}


def features_of(collection: Collection) -> tuple[Feature, ...]:
    """The columns of the collection's table, in their order."""
    return FEATURES[collection.kind]
