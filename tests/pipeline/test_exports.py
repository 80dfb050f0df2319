"""The package exports what a user's pipeline needs, and imports none of it by itself."""

import sys

import pytest
from processes import ran

from stagecraft import pipeline, tables


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, stagecraft.pipeline as p, stagecraft.tables; assert 'LocalRunner' in dir(p);"
        "print({'tensorflow', 'tfx', 'apache_beam', 'keras'} & set(sys.modules))"
    )
    assert ran(sys.executable, "-c", code).stdout.strip() == "set()"


@pytest.mark.parametrize("name", pipeline.__all__)
def test_every_export_exists(name):
    assert callable(getattr(pipeline, name)) or name == "features"
    assert getattr(pipeline, name) is getattr(pipeline, name)


def test_modules_of_the_package_are_still_found():
    from stagecraft.pipeline import configs, data

    assert data.__name__ == "stagecraft.pipeline.data" and configs.PIPELINE_NAME


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'LocalRuner'"):
        pipeline.LocalRuner  # noqa: B018


def test_a_task_of_a_table():
    houses = tables.Regression(features={"area": tables.Numeric()}, label="price")
    assert set(houses.schema_features) == {"area", "price"}
