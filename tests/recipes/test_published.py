"""The usual learning rates of a size and method."""

import math

from posttrain.recipes.published import FAMILIES, published, usual, usual_max_tokens


def test_every_published_setting_has_a_family_a_size_a_rate_and_a_source() -> None:
    families = set(FAMILIES.values())
    for row in published()["settings"]:
        assert row["family"] in families, row
        assert row["size"] >= 100 and 1e-8 < row["lr"] < 1e-2, row
        assert row["source"] and row["from"] in ("text", "file"), row
        assert set(row) <= {"family", "size", "lr", "lora", "batch", "warmup", "source", "from"}, row
    assert {row["family"] for row in published()["settings"]} == families


def test_the_rate_of_a_size_is_the_mean_of_the_nearest_published_ones() -> None:
    found = usual("supervised", 135_000_000, lora=False)
    assert found is not None
    nearest = [1e-3, 1e-3, 2e-5, 9.65e-6, 3e-4]  # 135, 360, 500, 1,300 and 1,700 million weights
    assert found.rate == float(f"{math.prod(nearest) ** 0.2:.1e}")
    assert (found.low, found.high) == (3.2e-6, 3e-3)
    assert found.warmup == 0.1


def test_the_planted_case_is_far_outside_and_its_remedy_is_not() -> None:
    found = usual("reinforcement", 135_000_000, lora=False)
    assert found is not None
    assert found.is_far(1e-4)
    assert not found.is_far(2e-6)
    assert found.rate == 1e-6
    assert "arXiv:2503.24290" in str(found)


def test_adapters_take_ten_times_the_rate_where_nothing_is_published_about_them() -> None:
    whole, adapted = (usual("reinforcement", 135_000_000, lora=lora) for lora in (False, True))
    assert whole is not None and adapted is not None
    assert (whole.rate, adapted.rate) == (1e-6, 1e-5)
    assert "Schulman" in adapted.sources[-1]
    published_ones = usual("preference", 135_000_000, lora=True)
    assert published_ones is not None and published_ones.rate == 5e-6


def test_the_table_is_not_about_tiny_models_and_a_completion_fits_into_the_context() -> None:
    assert usual("reinforcement", 300_000, lora=False) is None
    assert usual_max_tokens(8192)[0] == 256
    assert usual_max_tokens(100)[0] == 50
