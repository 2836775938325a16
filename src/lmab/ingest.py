"""From tables to the columns of `Episodes` and back: every check a log must pass, in one place.

Whatever comes in (pandas, polars, pyarrow, Parquet, CSV) becomes a pyarrow table of the named columns first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._shapes import Array, Float, Integer, Shaped
from .errors import InvalidData, InvalidFile, check_writable

Columns = Mapping[str, str | None]  # role (episode, action, reward, step, propensity) -> name of its column
Labels = tuple[str | int, ...]


class Log(NamedTuple):
    """The columns of an `Episodes`, in its order; see there."""

    actions: Integer[Array, "S"]
    rewards: Float[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_arms: int
    propensities: Float[Array, "S"] | None
    arm_labels: Labels | None


_METADATA = b"lmab"  # key of our note in a Parquet file's schema
_ARM_NUMBERS = 1024  # integers below this, or below twice the number of distinct ones, are arm numbers


def table(frame: Any, columns: Columns) -> Any:
    """The named columns of any data frame, as a pyarrow table."""
    import narwhals as nw
    import pyarrow as pa

    try:
        native = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidData(f"frame must be a pandas, polars or pyarrow data frame, got {type(frame).__name__}") from None
    names = _require_columns(list(native.columns), columns)
    arrays = []
    for name in names:
        try:
            arrays.append(native.select(name).to_arrow().column(0))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidData(f"column {name!r} must hold values of one type: {error}") from None
    return pa.table(arrays, names=names)


def parse(data: Any, columns: Columns, *, arm_labels: Labels | None = None, n_arms: int | None = None) -> Log:
    """The episodes of a pyarrow table with one row per step."""
    column = {role: data.column(name) for role, name in columns.items() if name is not None}
    if data.num_rows == 0:
        raise InvalidData("the log must have at least one row, got none")
    for role, values in column.items():
        _require_present(columns[role], values)
    rewards = _floats(columns["reward"], column["reward"], low=-np.inf, high=np.inf, text="finite")
    propensities = None
    if "propensity" in column:
        propensities = _floats(
            columns["propensity"], column["propensity"], low=np.nextafter(0, 1), high=1, text="in (0, 1]"
        )
    actions, labels = _arms(columns["action"], column["action"], arm_labels)
    keys = _ids(columns["episode"], column["episode"])
    steps = _ids(columns["step"], column["step"]) if "step" in column else None
    order = _order(keys, steps, columns)
    if order is not None:
        keys, actions, rewards = keys[order], actions[order], rewards[order]
        propensities = None if propensities is None else propensities[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    size = len(labels) if labels is not None else max(n_arms or 0, int(actions.max()) + 1)
    return Log(actions, rewards, np.append(starts, len(keys)), size, propensities, labels)


def read(path: str | os.PathLike[str], columns: Columns, *, arm_labels: Labels | None = None) -> Log:
    """The episodes of a Parquet or CSV file."""
    data, note = _read_csv(path, columns) if _is_csv(path) else _read_parquet(path, columns)
    if note is None:
        return parse(data, columns, arm_labels=arm_labels)
    columns = {**columns, **note["columns"]}
    labels = arm_labels or (None if note["arm_labels"] is None else tuple(note["arm_labels"]))
    return parse(data, columns, arm_labels=labels, n_arms=note["n_arms"])


def write(path: str | os.PathLike[str], log: Log) -> None:
    """Write `log` as Parquet or CSV; a Parquet file also notes the table of labels and the number of arms."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    check_writable(path)
    lengths = np.diff(log.offsets)
    steps = np.arange(len(log.actions)) - np.repeat(log.offsets[:-1], lengths)
    arms: Any = pa.array(log.actions)
    if log.arm_labels is not None:
        arms = pa.DictionaryArray.from_arrays(arms, pa.array(log.arm_labels)).dictionary_decode()
    data = {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": steps,
        "action": arms,
        "reward": log.rewards,
    }
    if log.propensities is not None:
        data["propensity"] = log.propensities
    roles = {"step": "step"} | ({"propensity": "propensity"} if log.propensities is not None else {})
    labels = None if log.arm_labels is None else list(log.arm_labels)
    note = {"columns": roles, "n_arms": log.n_arms, "arm_labels": labels}
    schema = {_METADATA: json.dumps(note).encode()}
    temporary = f"{os.fspath(path)}.partial"
    try:
        if _is_csv(path):
            pa.csv.write_csv(pa.table(data), temporary)
        else:
            pa.parquet.write_table(pa.table(data).replace_schema_metadata(schema), temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _is_csv(path: str | os.PathLike[str]) -> bool:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise InvalidFile(f"{os.fspath(path)}: a log must end in .parquet, .pq or .csv")
    return suffix == ".csv"


def _read_parquet(path: str | os.PathLike[str], columns: Columns) -> tuple[Any, dict[str, Any] | None]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pa.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            note = _note(schema.metadata, columns)
            names = _require_columns(list(schema.names), {**columns, **(note["columns"] if note else {})})
            return file.read(columns=names), note
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot be read as Parquet: {_first_line(error)}") from None


def _read_csv(path: str | os.PathLike[str], columns: Columns) -> tuple[Any, None]:
    import pyarrow as pa
    import pyarrow.csv

    try:
        data = pa.csv.read_csv(path)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot be read as CSV: {_first_line(error)}") from None
    return data.select(_require_columns(data.column_names, columns)), None


def _note(metadata: Mapping[bytes, bytes] | None, columns: Columns) -> dict[str, Any] | None:
    """What `write` noted in the file, if we wrote it and the columns asked for are its own."""
    if not metadata or _METADATA not in metadata or columns["action"] != "action":
        return None
    try:
        note = json.loads(metadata[_METADATA])
        valid = {"columns", "n_arms", "arm_labels"} <= set(note) and isinstance(note["n_arms"], int)
    except (ValueError, TypeError):
        return None
    return note if valid else None


def _require_columns(found: list[str], columns: Columns) -> list[str]:
    names = [name for name in columns.values() if name is not None]
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidData(f"the log has no column {missing[0]!r}; its columns are {', '.join(map(repr, found))}")
    return list(dict.fromkeys(names))


def _require_present(name: str | None, values: Any) -> None:
    import pyarrow.compute as pc

    if values.null_count:
        raise InvalidData(f"column {name!r} has a missing value in row {pc.index(pc.is_null(values), True).as_py()}")


def _floats(name: str | None, values: Any, *, low: float, high: float, text: str) -> Float[Array, "S"]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidData(f"column {name!r} must hold numbers, got {kind} ({values[0].as_py()!r} in row 0)")
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    bad = ~(np.isfinite(numbers) & (numbers >= low) & (numbers <= high))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidData(f"column {name!r} must be {text}, got {numbers[row]} in row {row}")
    return numbers


def _arms(name: str | None, values: Any, labels: Labels | None) -> tuple[Integer[Array, "S"], Labels | None]:
    """Arm numbers, and the table of labels where arms are not plain numbers."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind):
        numbers = values.to_numpy()
        if labels is None and numbers.min() >= 0:
            top = int(numbers.max())
            if top < _ARM_NUMBERS or top < 2 * len(np.unique(numbers)):
                return numbers.astype(np.int32), None
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_string_view(kind)):
        raise InvalidData(f"column {name!r} must hold integers or text, got {kind} ({values[0].as_py()!r} in row 0)")
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    seen = encoded.dictionary.to_pylist()
    known = tuple(sorted(seen)) if labels is None else labels
    place = {label: arm for arm, label in enumerate(known)}
    codes = encoded.indices.to_numpy()
    unknown = [code for code, label in enumerate(seen) if label not in place]
    if unknown:
        row = int(np.flatnonzero(codes == unknown[0])[0])
        raise InvalidData(f"column {name!r} names an unknown arm, {seen[unknown[0]]!r}, in row {row}")
    return np.array([place[label] for label in seen], np.int32)[codes], known


def _is_string_view(kind: Any) -> bool:
    return str(kind) == "string_view"


def _ids(name: str | None, values: Any) -> Shaped[Array, "S"]:
    """Numbers that sort as the column does: integers and times as they are, text by its rank."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_temporal(kind):
        return values.cast(pa.int64(), safe=False).to_numpy()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        numbers: Shaped[Array, "S"] = values.to_numpy()
        if pa.types.is_floating(kind) and np.isnan(numbers).any():
            raise InvalidData(f"column {name!r} has a missing value in row {int(np.flatnonzero(np.isnan(numbers))[0])}")
        return numbers
    try:
        encoded = values.combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        ranks = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
    except pa.ArrowException:
        raise InvalidData(f"column {name!r} must hold integers, text or times, got {kind}") from None
    return ranks[encoded.indices.to_numpy()]


def _order(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"] | None, columns: Columns) -> Integer[Array, "S"] | None:
    """The permutation that sorts rows by episode and step, or None where they are in order already."""
    rising = keys[1:] > keys[:-1]
    same = keys[1:] == keys[:-1]
    if steps is None:
        return None if bool((rising | same).all()) else np.argsort(keys, kind="stable")
    if bool((rising | (same & (steps[1:] > steps[:-1]))).all()):
        return None
    order = _sort_pairs(keys, steps)
    twice = (keys[order[1:]] == keys[order[:-1]]) & (steps[order[1:]] == steps[order[:-1]])
    if twice.any():
        row = int(np.maximum(order[1:], order[:-1])[twice].min())
        raise InvalidData(f"column {columns['step']!r} repeats a step of the same episode in row {row}")
    return order


def _sort_pairs(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"]) -> Integer[Array, "S"]:
    """argsort by (key, step); one integer sort where the pair fits into 64 bits, which is several times faster."""
    if keys.dtype.kind in "iu" and steps.dtype.kind in "iu":
        low_key, low_step = int(keys.min()), int(steps.min())
        width = int(steps.max()) - low_step + 1
        if (int(keys.max()) - low_key + 1) * width < 2**63:
            return np.argsort((keys - low_key).astype(np.int64) * width + (steps - low_step).astype(np.int64))
    return np.lexsort((steps, keys))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
