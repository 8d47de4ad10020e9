"""Cases that no schema leads to: depth, size, number, names, foreign children, strangers' hands."""

import random
from collections.abc import Callable
from typing import Any

from dgl_operator.runtime.kinds import Kind
from dglrun.contract.names import MAX_JOB_NAME, Mode
from tests.fuzz import acts, children, mutants, values
from tests.fuzz.acts import Act
from tests.fuzz.cases import Case, Expect, Place, Submission
from tests.fuzz.json_text import Verbatim, encode, nested
from tests.support.played_job import a_played_job

Json = dict[str, Any]
Make = Callable[[random.Random, str], Case]

_BRACKETS = {
    "objects": ('{"a":', "}", "1"),
    "lists": ("[", "]", ""),
    "lists of objects": ('[{"a":', "}]", "null"),
}


def _case(kind: str, what: str, name: str, *bodies: Json, **more: Any) -> Case:
    return Case(0, kind, what, name, tuple(Submission.of(body) for body in bodies), **more)


def _plain(name: str, workers: int = 2, **given: Any) -> Json:
    return a_played_job(name, workers=workers, **given)


def _template(body: Json, rng: random.Random) -> tuple[Json, str]:
    roles = body["spec"]["dglReplicaSpecs"]
    role = rng.choice(sorted(roles))
    return roles[role]["template"], role


def deep(least: int, most: int = 0) -> Make:
    """A job with so many levels under a template key that no schema knows; any number up to `most`."""

    def make(rng: random.Random, name: str) -> Case:
        levels = rng.randint(least, most) if most else least
        body = _plain(name)
        template, role = _template(body, rng)
        container = template["spec"]["containers"][0]
        holder, where = rng.choice(
            [(template, "template"), (template["spec"], "pod spec"), (container, "container")]
        )
        style = rng.choice(sorted(_BRACKETS))
        opening, closing, inside = _BRACKETS[style]
        holder["deep"] = nested(levels // (2 if style == "lists of objects" else 1), opening, closing, inside)
        return _case(
            f"{told} levels deep",
            f"{levels:,} levels: {style} under an unknown key of {role}'s {where}",
            name,
            body,
        )

    told = f"{least:,} to {most:,}" if most else f"{least:,}"
    return make


def large(rng: random.Random, name: str) -> Case:
    """A job of 1.4 MB."""
    body = _plain(name)
    template, role = _template(body, rng)
    container, where = template["spec"]["containers"][0], rng.choice(["unknown key", "args", "env", "keys"])
    if where == "unknown key":
        container["large"] = "x" * 1_400_000
    elif where == "args":
        container["args"] = ["x" * 70_000] * 20
    elif where == "env":
        container["env"] = [{"name": f"E{index}", "value": "x" * 70} for index in range(14_000)]
    else:
        container["large"] = {f"key-{index}": [None] for index in range(70_000)}
    return _case("1.4 MB", f"{role}: {where}", name, body)


def replicas(rng: random.Random, name: str) -> Case:
    """Too many replicas, or no number of them."""
    count = rng.choice([100_000, 100_000, 1001, 0, -1, 2**31, 2**63, 1.5, "3", None, Verbatim("1e3")])
    role = rng.choice(["Worker", "Worker", "Launcher"])
    body = _plain(name)
    body["spec"]["dglReplicaSpecs"][role]["replicas"] = count
    return _case("replicas out of range", f"{role}.replicas = {count}", name, body)


def thousand_refused(rng: random.Random, name: str) -> Case:
    """A thousand workers whose template is found wrong before the partitioning."""
    body = _plain(name, 1000)
    pod = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    key, value = rng.choice(
        [
            ("containers", [{"name": "Not A Name", "image": "x"}]),
            ("terminationGracePeriodSeconds", "soon"),
            ("tolerations", [{"operator": "Perhaps"}]),
            ("nodeselector", {"disk": "ssd"}),
        ]
    )
    pod[key] = value
    return _case("1,000 workers, refused", f"Worker: {key} = {value}", name, body)


def thousand_blocked(_rng: random.Random, name: str) -> Case:
    """A thousand workers that a quota refuses one by one after the partitioning."""
    steps, body = acts.life(until=3), _plain(name, 1000)
    told = "quota of 4 pods"
    return _case(
        "1,000 workers, no quota", told, name, body, acts=steps, expect=Expect.BLOCKED, place=Place.NARROW
    )


def long_values(rng: random.Random, name: str) -> Case:
    """Texts of 70,000 characters where texts belong."""
    body = _plain(name)
    template, role = _template(body, rng)
    what, text = values.huge(rng)
    container, metadata = template["spec"]["containers"][0], template.setdefault("metadata", {})
    places: dict[str, Callable[[], None]] = {
        "args": lambda: container.update(args=[text]),
        "command": lambda: container.update(command=[text]),
        "env value": lambda: container.update(env=[{"name": "LONG", "value": text}]),
        "env name": lambda: container.update(env=[{"name": text, "value": "x"}]),
        "image": lambda: container.update(image=text),
        "container name": lambda: container.update(name=text),
        "annotation": lambda: metadata.update(annotations={"note": text}),
        "label": lambda: metadata.update(labels={"note": text}),
        "annotation of the job": lambda: body["metadata"].update(annotations={"note": text}),
        "volume name": lambda: template["spec"].update(volumes=[{"name": text, "emptyDir": {}}]),
        "mount path": lambda: container.update(volumeMounts=[{"name": "dataset-volume", "mountPath": text}]),
        "quantity": lambda: container.update(resources={"limits": {"cpu": text}}),
        "restart policy": lambda: template["spec"].update(restartPolicy=text),
    }
    where = rng.choice(sorted(places))
    places[where]()
    return _case("70,000 characters", f"{role}: {where}: {what}", name, body)


def odd_name(rng: random.Random, name: str) -> Case:
    """A legal but odd name, or one that is not quite legal."""
    number = name.rpartition("-")[2]
    chosen = rng.choice(
        [
            f"{'a' * (MAX_JOB_NAME - len(number))}{number}",
            f"{'a' * (MAX_JOB_NAME + 1 - len(number))}{number}",
            f"a--{number}",
            f"{name}-worker-0",
            f"{name}-launcher",
            f"x{number}",
            f"{number}x",
            f"a.b.{number}",
            f"{name}-config",
            f"null{number}",
            f"{name}-",
            f"A{number}",
            f"\uff41{number}",
            f"{'a' * 200}{number}",
        ]
    )
    return _case("odd name", chosen[:80], chosen, _plain(chosen))


def name_pair(rng: random.Random, name: str) -> Case:
    """Two jobs, one named as a child of the other."""
    other = f"{name}-{rng.choice(['launcher', 'partitioner', 'worker', 'worker-0', 'report'])}"
    return _case("two jobs with one name", other, name, _plain(name), _plain(other))


def raw_json(rng: random.Random, name: str) -> Case:
    """JSON that a lenient reader takes and a strict one does not."""
    text = encode(_plain(name)).decode()
    changes = {
        "duplicate spec": ('"spec":', '"spec": {}, "spec":'),
        "duplicate replicas": ('"replicas":', '"replicas": 3, "replicas":'),
        "another case": ('"replicas":', '"REPLICAS": 3, "Replicas": 4, "replicas":'),
        "a byte order mark": ("{", "\ufeff{"),
        "a comment": ("{", "{/* odd */"),
        "a trailing comma": ("}", ",}"),
        "escaped keys": ('"spec"', '"\\u0073pec"'),
        "no text": (text, ""),
        "a list": (text, "[]"),
        "two documents": (text, text + text),
    }
    what = rng.choice(sorted(changes))
    body = text.replace(*changes[what], 1).encode()
    return Case(0, "raw JSON", what, name, (Submission(Kind.JOB, name, body),))


def many(rng: random.Random, name: str) -> Case:
    """So many containers, mounts, labels or keys that no user would write them."""
    body = _plain(name)
    template, role = _template(body, rng)
    pod, count = template["spec"], rng.choice([500, 2000])
    container = pod["containers"][0]
    where = rng.choice(["containers", "initContainers", "env", "ports", "volumes", "volumeMounts", "labels"])
    if where in ("containers", "initContainers"):
        made = [{"name": f"more-{index}", "image": "x"} for index in range(count)]
        pod[where] = [*pod.get(where, []), *made]
    elif where == "env":
        container[where] = [{"name": f"E{index}", "value": "$(E0)"} for index in range(count)]
    elif where == "ports":
        container[where] = [{"containerPort": index + 1} for index in range(count)]
    elif where == "volumes":
        pod[where] = [{"name": f"v-{index}", "emptyDir": {}} for index in range(count)]
    elif where == "volumeMounts":
        pod["volumes"] = [{"name": "v", "emptyDir": {}}]
        container[where] = [{"name": "v", "mountPath": f"/m/{index}"} for index in range(count)]
    else:
        template["metadata"] = {where: {f"l{index}": "x" for index in range(count)}}
    return _case("many of one kind", f"{role}: {count} {where}", name, body)


def odd_metadata(rng: random.Random, name: str) -> Case:
    """Owners, finalizers and annotations of the job itself."""
    body = _plain(name)
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "odd",
        "uid": "00000000-dead-4000-8000-000000000000",
    }
    given: dict[str, Json] = {
        "an owner that is not there": {"ownerReferences": [owner]},
        "a finalizer": {"finalizers": [acts.FINALIZER]},
        "200 kB of annotations": {"annotations": {f"a{index}": "x" * 2000 for index in range(100)}},
        "the label of a child": {"labels": {"dgl-operator/job-name": name, "dgl-replica-type": "Worker"}},
        "a uid and a version": {"uid": "odd", "generation": 2**62},
        "a deletion time": {"deletionTimestamp": acts.TIME, "deletionGracePeriodSeconds": 0},
        "field managers": {"managedFields": [{"manager": "odd", "operation": "Apply"}]},
    }
    what = rng.choice(sorted(given))
    body["metadata"] |= given[what]
    expect = Expect.NOTHING if "owner" in what else Expect.STATUS
    return _case("odd metadata", what, name, body, expect=expect)


def foreign_children(rng: random.Random, name: str) -> Case:
    """A job with labelled objects of others around it; it has to come to its end."""
    made = [children.foreign(rng, name) for _ in range(3)]
    what = "; ".join(told for _, _, told in made)
    bodies = {(kind, body["metadata"]["name"]): body for kind, body, _ in made}
    return _case(
        "foreign children", what, name, _plain(name), *bodies.values(), acts=acts.life(), expect=Expect.END
    )


def squatters(rng: random.Random, name: str) -> Case:
    """A name that the job needs is taken."""
    _, body, what = children.squatter(rng, name)
    return _case("a name is taken", what, name, body, _plain(name))


def flood(_rng: random.Random, name: str) -> Case:
    """200 labelled ConfigMaps of 0.9 MB."""
    return _case("200 ConfigMaps of 0.9 MB", "no owner", name, _plain(name), *children.flood(name))


def relabelled(rng: random.Random, name: str) -> Case:
    """A pod of a running job loses or changes a label; the job has to end with its launcher."""
    suffix = rng.choice(["launcher", "worker-0", "worker-1", "partitioner"])
    change = rng.choice(sorted(acts.RELABELLINGS))
    steps = acts.life()
    at = rng.choice([1, 3, len(steps) - 1]) if not suffix.startswith("worker") else len(steps) - 1
    changed = (*steps[:at], acts.relabel(suffix, change), *steps[at:])
    return _case(
        "relabelled pod",
        f"{suffix}: {change}, step {at}",
        name,
        _plain(name),
        acts=changed,
        expect=Expect.END,
    )


def strangers_status(rng: random.Random, name: str) -> Case:
    """Somebody writes the status, early or late."""
    act, what = acts.strangers_status(rng)
    until = rng.choice([0, 1, 3])
    steps = (*acts.life(until=until), act)
    return _case("a stranger's status", f"{what}, after {until} steps", name, _plain(name), acts=steps)


def deleted(rng: random.Random, name: str) -> Case:
    """The job goes while it is under way."""
    until, policy = rng.randint(0, 6), rng.choice(["Background", "Foreground", "Orphan"])
    steps = (*acts.life(until=until), acts.delete_job(policy))
    body = _plain(name)
    if held := rng.random() < 0.2:
        body["metadata"]["finalizers"] = [acts.FINALIZER]
    what = f"{policy} after {until} steps" + (", held by a finalizer" if held else "")
    return _case("deleted under way", what, name, body, acts=steps, expect=Expect.NOTHING)


def updated(rng: random.Random, name: str) -> Case:
    """Fields of the job change while it is under way."""
    until = rng.randint(0, 5)
    made = [acts.mutable_update(rng) for _ in range(2)]
    steps = [*acts.life(until=until), *(act for act, _ in made)]
    what = "; ".join(told for _, told in made) + f", after {until} steps"
    return _case("updated under way", what, name, _plain(name), acts=tuple(steps))


def odd_pod_status(rng: random.Random, name: str) -> Case:
    """A kubelet reports what none would."""
    act, what = acts.odd_pod_status(rng)
    until = rng.randint(0, 2)
    steps = (*acts.life(until=until), act)
    return _case("odd pod status", f"{what}, after {until} steps", name, _plain(name), acts=steps)


def odd_report(rng: random.Random, name: str) -> Case:
    """The job's own report is unreadable; the job has to come to its end."""
    mode = rng.choice([Mode.DGL_API, Mode.DIST_PARMETIS])
    act, what = acts.odd_report(rng)
    steps: tuple[Act, ...] = tuple(
        step for step in acts.life() if mode.has_partitioner or "partitioner" not in step.name
    )
    changed = (*steps[:-1], act, steps[-1])
    body = _plain(name, mode=mode)
    return _case("odd report", f"{mode.value}: {what}", name, body, acts=changed, expect=Expect.END)


def played(rng: random.Random, name: str) -> Case:
    """A good job with a rich template, played a part of its way."""
    body = mutants.good(rng, name)
    if "Worker" in body["spec"]["dglReplicaSpecs"]:
        body["spec"]["partitionMode"] = Mode.DGL_API.value
    return _case("good job", "played", name, mutants.pinned(body), acts=acts.life(until=rng.randint(0, 6)))


OFTEN: tuple[Make, ...] = (
    deep(1_100),
    long_values,
    relabelled,
    foreign_children,
    odd_report,
    deep(9_000),
    squatters,
    odd_pod_status,
    strangers_status,
    odd_name,
    deep(150, 200),
    deleted,
    updated,
    replicas,
    odd_metadata,
    raw_json,
    many,
    name_pair,
    played,
    large,
    deep(9_900),
    thousand_refused,
)
"""One after the other."""
