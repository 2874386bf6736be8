"""Networks and checkpoints of PyTorch for the tests."""

import torch
from torch_jem import Classifier, score


def make(depth=10, width=1, norm=None, classes=10, linear=True, seed=0):
    """Return a network with random weights whose norms have statistics of data."""
    torch.manual_seed(seed)
    network = Classifier(depth, width, norm, classes, linear).train()
    network(torch.randn(8, 3, 32, 32))
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if ".bn" in name:
                weight.add_(0.1 * torch.randn_like(weight))
        if norm is None:  # its gradients are so small that noise alone would move the chains
            network.class_output.weight.mul_(10)
    return network.eval()


def save(network, path, chains=None, **options):
    """Write a checkpoint as the authors' code does."""
    content = {"model_state_dict": network.state_dict()}
    if chains is not None:
        content["replay_buffer"] = chains
    torch.save(content, path, **options)


def write_golden(folder):
    """Write the files of `test_golden.py`: a checkpoint in half precision and PyTorch's outputs."""
    import numpy as np

    network = make()
    chains = (torch.rand(2, 3, 32, 32) * 2 - 1).half()
    halves = {k: v.half() for k, v in network.state_dict().items()}
    content = {"model_state_dict": halves, "replay_buffer": chains}
    torch.save(content, folder / "golden.pt", _use_new_zipfile_serialization=False)
    network.load_state_dict({k: v.float() for k, v in halves.items()})
    x = chains.float()
    arrays = {"logits": network(x).detach().numpy(), "score": score(network, x).numpy()}
    np.savez_compressed(folder / "golden.npz", **arrays)


if __name__ == "__main__":  # in tests/: PYTHONPATH=../benchmarks python -m pytorch.reference
    from pathlib import Path

    write_golden(Path(__file__).parent)
