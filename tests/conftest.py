"""What all tests share."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="run the long campaigns with their full counts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--campaign"):
        return
    for item in items:
        if "campaign" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a long campaign; './inv test --campaign' runs it"))


@pytest.fixture(scope="session")
def full_campaigns(pytestconfig: pytest.Config) -> bool:
    """Whether seeded samples should run with their full counts."""
    return bool(pytestconfig.getoption("--campaign"))


@pytest.fixture(autouse=True, scope="session")
def _plain_environment() -> None:
    """Tests see the project's defaults, whatever the person running them has set."""
    for name in ("TRITFORGE_BOARD", "TRITFORGE_MODEL"):
        os.environ.pop(name, None)
