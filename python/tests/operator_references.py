"""The expected result of each operator, in plain torch and double.

Each function returns (results, a dictionary of the written tensors by argument). A family of operators has a module of
its own, and this one finds an operator's function by its name.
"""

import attention_references
import moe_references
import recurrent_references
import row_references
import torch

FAMILIES = (row_references, moe_references, recurrent_references, attention_references)


def __getattr__(name):
    for family in FAMILIES:
        if name in vars(family):
            return vars(family)[name]
    raise AttributeError(f"no family has the reference {name}")


def of_reference(name):
    """An operator that computes in float64, and gives its results and what it writes in the operator's types."""
    reference, schema = __getattr__(name), getattr(torch.ops.kiln, name).default._schema
    names = [argument.name for argument in schema.arguments]

    def call(*arguments, **named):
        results, written = reference(*arguments, **named)
        given = dict(zip(names, arguments)) | named
        for argument, value in written.items():
            given[argument].copy_(value)
        own = arguments[0].dtype
        states = torch.float32 if name in ("delta_rule", "wkv7") else own
        results = tuple(result.to(states if i == 1 else own) for i, result in enumerate(results))
        return results if len(results) > 1 else results[0]

    return call
