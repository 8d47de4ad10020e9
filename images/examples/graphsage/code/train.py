"""Train GraphSAGE on the Debian package graph in one process: the baseline, and the Skip example."""

import argparse
import time
from typing import Any

import dgl
import torch as th

import debian_data
import dglrun
import sage


def train(arguments: argparse.Namespace) -> None:
    """Train, judge, save."""
    th.manual_seed(arguments.seed)
    dgl.seed(arguments.seed)
    graph = debian_data.load(arguments.dataset_url, arguments.variant)
    if arguments.no_edges:
        for relation in graph.canonical_etypes:
            graph.remove_edges(graph.edges(form="eid", etype=relation), etype=relation)
    data, device = graph.nodes[sage.target(graph)].data, sage.device(arguments.num_gpus)

    def batches(mask: str, fan_out: tuple[int, ...], size: int) -> Any:
        nodes = data[mask].nonzero().squeeze(1)
        sampler = dgl.dataloading.NeighborSampler(list(fan_out))
        shuffle = mask == "train_mask"
        seeds = sage.seeds_of(graph, nodes)
        return dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=size, shuffle=shuffle)

    def fetch(batch: sage.Batch) -> Any:
        return sage.fetch(graph, batch, device)

    classes = int(data["labels"].max()) + 1
    widths = (data["features"].shape[1], arguments.num_hidden, classes)
    model = sage.build(graph, widths, arguments.dropout).to(device)
    optimizer = th.optim.Adam(model.parameters(), lr=arguments.lr)
    fan_out, fan_out_eval = sage.fan_outs(arguments, graph)
    loader = batches("train_mask", fan_out, arguments.batch_size)
    epochs = []
    for epoch in range(arguments.num_epochs):
        start = time.monotonic()
        losses = [sage.step(model, optimizer, *fetch(batch)) for batch in loader]
        epochs.append({"loss": sum(losses) / len(losses), "seconds": time.monotonic() - start})
        print(f"epoch {epoch}: loss {epochs[-1]['loss']:.4f}, {epochs[-1]['seconds']:.1f} s")
        dglrun.progress(epoch, epochs[-1]["loss"], 100 * (epoch + 1) / arguments.num_epochs)

    evaluated = batches("test_mask", fan_out_eval, arguments.batch_size_eval)
    right, count = sage.correct(model, evaluated, fetch).tolist()
    majority = sage.majority_accuracy(data["labels"], data["train_mask"], data["test_mask"])
    metrics = {"test_accuracy": right / count, "majority": majority, "world_size": 1, "epochs": epochs}
    sage.save(model, {**metrics, "parameters": sage.digest(model)})
    print(sage.final_words(right / count, majority))


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset_url", help="dataset folder, or a package index by path or address")
    parser.add_argument("--variant", choices=debian_data.VARIANTS, default=debian_data.VARIANTS[0])
    parser.add_argument("--no_edges", action="store_true", help="learn from the features alone")
    parser.add_argument("--graph_name", help="not needed; so that one command line fits both trainings")
    sage.add_arguments(parser)
    parser.set_defaults(batch_size=1000)
    return parser


if __name__ == "__main__":
    train(command_line().parse_args())
