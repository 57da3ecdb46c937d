import pytest
from agent_stage import Stage


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)
