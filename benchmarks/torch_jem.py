"""JEM in PyTorch, for comparisons: the authors' network with their names, and Algorithm 1.

Not here: anything of jem_tf. It does what a careful user of PyTorch would do: one forward pass for
data and samples, no gradients of weights inside chains, a choice of the memory layout.
"""

import torch
from torch import nn


class ActNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.scale = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if not self.initialized:
            with torch.no_grad():
                deviation, mean = torch.std_mean(x, (0, 2, 3), keepdim=True)
                self.loc.copy_(-mean)
                self.scale.copy_(1 / (deviation + 1e-6))
                self.initialized.fill_(1)
        return self.scale * (x + self.loc)


NORMS = {
    None: lambda n: nn.Identity(),
    "batch": lambda n: nn.BatchNorm2d(n, momentum=0.9),
    "instance": lambda n: nn.InstanceNorm2d(n, affine=True),
    "layer": lambda n: nn.GroupNorm(1, n),
    "act": ActNorm,
}


class Block(nn.Module):
    def __init__(self, before, after, stride, norm):
        super().__init__()
        self.bn1, self.bn2 = NORMS[norm](before), NORMS[norm](after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, stride, padding=1)
        self.shortcut = nn.Sequential()
        if stride > 1 or before != after:
            self.shortcut.append(nn.Conv2d(before, after, 1, stride))

    def forward(self, x):
        y = self.conv1(nn.functional.leaky_relu(self.bn1(x), 0.2))
        y = self.conv2(nn.functional.leaky_relu(self.bn2(y), 0.2))
        return y + self.shortcut(x)


class WideResNet(nn.Module):
    def __init__(self, depth, width, norm=None, linear=True):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        before = 16
        for stage, after in enumerate((16 * width, 32 * width, 64 * width), start=1):
            blocks = nn.Sequential()
            for index in range((depth - 4) // 6):
                blocks.append(Block(before, after, 2 if stage > 1 and index == 0 else 1, norm))
                before = after
            self.add_module(f"layer{stage}", blocks)
        self.bn1 = NORMS[norm](before)
        if linear:  # the authors' network has this layer and never uses it; that of JEM++ does not
            self.linear = nn.Linear(before, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return nn.functional.leaky_relu(self.bn1(x), 0.2).mean((2, 3))


class Classifier(nn.Module):
    def __init__(self, depth=10, width=1, norm=None, classes=10, linear=True):
        super().__init__()
        self.f = WideResNet(depth, width, norm, linear)
        self.energy_output = nn.Linear(64 * width, 1)
        self.class_output = nn.Linear(64 * width, classes)

    def forward(self, x):
        return self.class_output(self.f(x))


class Trainer:
    """Algorithm 1 with Adam; `layout` is the memory layout of images."""

    def __init__(self, network, shape, capacity=1000, steps=20, rate=1e-4, layout=None):
        self.layout = layout or {}
        self.network, self.steps = network.to(**self.layout), steps
        self.optimizer = torch.optim.Adam(network.parameters(), rate, fused=True)
        self.buffer = self._uniform(capacity, *shape)

    def _uniform(self, *shape):
        return torch.empty(shape).uniform_(-1, 1).to(**self.layout)

    def step(self, x, y):
        n = len(x)
        slots = torch.randperm(len(self.buffer))[:n]
        restart = torch.rand(n, 1, 1, 1) < 0.05
        samples = torch.where(restart, self._uniform(*x.shape), self.buffer[slots])
        for _ in range(self.steps):
            samples = samples + score(self.network, samples) + 0.01 * torch.randn_like(samples)
        noisy = x + 0.03 * torch.randn_like(x)
        logits = self.network(torch.cat([noisy, samples]))
        f = logits.logsumexp(1)
        loss = nn.functional.cross_entropy(logits[:n], y) + f[n:].mean() - f[:n].mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.buffer[slots] = samples
        return loss.detach()


def score(network, x):
    """d logsumexp f(x) / dx."""
    x = x.detach().requires_grad_(True)
    return torch.autograd.grad(network(x).logsumexp(1).sum(), x)[0]


def convnet(classes=10, width=32, size=8, channels=1):
    """The network of `jem_tf.backbones.convnet`."""
    layers = [nn.Conv2d(channels, width, 3, padding=1), nn.SiLU()]
    filters = width
    while size > 2:
        before, filters = filters, min(2 * filters, 8 * width)
        layers += [nn.ZeroPad2d((0, 1, 0, 1))] if size % 2 else []  # as padding="same" of Keras
        layers += [nn.Conv2d(before, filters, 4, 2, padding=1), nn.SiLU()]
        size = -(-size // 2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(filters * size * size, classes))
