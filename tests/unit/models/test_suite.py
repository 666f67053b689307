"""The fixed runs of the models."""

import numpy as np
import pytest

from nnk.engines.parity import digest
from nnk.engines.suite import anchors
from nnk.errors import ModelError
from nnk.models.suite import MODELS, model_outputs


@pytest.mark.parametrize("name", MODELS)
def test_outputs_have_their_anchor(name, cpu):
    outputs = model_outputs(name, cpu)
    assert all(np.isfinite(array).all() and array.size for array in outputs.values())
    assert digest(outputs) == anchors().digests[f"model {name}"]


def test_unknown_model(cpu):
    with pytest.raises(ModelError, match="Expected one of all-MiniLM-L6-v2 for a model, got 'gpt'"):
        model_outputs("gpt", cpu)
