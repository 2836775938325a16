"""What a log knows of a session besides its steps: features, persons, and how it ended."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lmab
from lmab import Sessions
from lmab.data.features import LEFT, UNKNOWN, WENT_ON, Features, person_ids, person_numbers
from lmab.data.fingerprint import Fingerprint
from lmab.errors import InvalidArgument, InvalidData, LmabWarning

ARMS = [[0, 1, 2], [1, 0, -1], [2, -1, -1], [0, 0, 1]]
REWARDS = np.ones((4, 3))
FEATURES = {"country": ["de", None, "fr", "de"], "age": [31.0, 20.0, np.nan, 31.0]}


def log(**more) -> Sessions:
    return Sessions.from_arrays(ARMS, REWARDS, **more)


@pytest.fixture
def full() -> Sessions:
    return log(features=FEATURES, persons=["ann", "bob", None, "ann"], ended=["unknown", "left", "left", "unknown"])


def rows(**columns):
    """One row per step of three sessions, ids in falling order."""
    data = {"session": [9, 9, 5, 7, 7, 7], "arm": [0, 1, 0, 1, 0, 1], "reward": [1, 0, 1, 0, 0, 1]}
    return pd.DataFrame(data | columns)


def test_features_are_a_mapping_of_values_per_session():
    features = log(features=FEATURES).features
    assert list(features) == ["country", "age"]
    assert features["country"].tolist() == ["de", None, "fr", "de"]
    np.testing.assert_array_equal(features["age"], [31.0, 20.0, np.nan, 31.0])
    assert features.n_rows == 3
    assert features.rows[0] == features.rows[3]
    with pytest.raises(KeyError):
        features["city"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": [1, 2, 3]}, r"features\['x'\] must hold one value for each of the 4 sessions, got 3"),
        ({"x": ["a", 1, "b", 2]}, r"features\['x'\] must hold numbers or text, got values of int, str"),
        ({"x": [1.0, np.inf, 2.0, 3.0]}, r"features\['x'\] must hold finite numbers, got inf"),
        ({"x": [[1], [2], [3], [4]]}, r"features\['x'\] must be one-dimensional"),
        ({"x": pd.to_datetime(["2024-01-01"] * 4)}, r"features\['x'\] must hold numbers or text"),
        ({"x": [10**400, 2, 3, 4]}, r"features\['x'\] must hold numbers below 1e308"),
        ({}, "features must hold at least one column, got none"),
        ({3: [1, 2, 3, 4]}, "features must be named by text, got 3"),
        (["de", "fr"], r"features must be a mapping such as \{'country': values\}, got a list$"),
        (pd.DataFrame({"x": [1, 2, 3, 4]}), r"got a DataFrame: give \{'country': frame\['country'\]\}$"),
    ],
)
def test_features_that_are_refused(given, message):
    with pytest.raises((InvalidArgument, InvalidData), match=message):
        log(features=given)


def test_truth_values_and_integers_are_numbers():
    features = log(features={"new": [True, False, None, True], "age": [1, 2, 3, 4]}).features
    np.testing.assert_array_equal(features["new"], [1.0, 0.0, np.nan, 1.0])
    assert features["age"].dtype == np.float64


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (pd.Series(["de", None, "fr", "de"], dtype="string"), ["de", None, "fr", "de"]),
        (["de", pd.NA, "fr", "de"], ["de", None, "fr", "de"]),
        (pd.array([True, None, False, True], dtype="boolean"), [1.0, None, 0.0, 1.0]),
        ([3, pd.NA, 4, pd.NaT], [3.0, None, 4.0, None]),
    ],
)
def test_the_missing_values_of_pandas_are_missing(given, found):
    features = log(features={"x": given}).features
    assert [None if one != one else one for one in features["x"].tolist()] == found


def test_missing_persons_of_pandas_are_strangers():
    assert log(persons=pd.Series(["ann", None, "bob", "ann"], dtype="string")).persons.tolist() == [
        "ann", None, "bob", "ann",
    ]  # fmt: skip


def test_a_column_that_is_missing_in_one_log_is_added():
    numbers, texts = {"age": [1, 2, 3, 4]}, {"age": list("abcd")}
    for nothing in ([None] * 4, [np.nan] * 4, np.full(4, np.nan)):
        empty = log(features={"age": nothing})
        for known in (numbers, texts):
            both = [log(features=known) + empty, empty + log(features=known)]
            values = [[one for one in part.features["age"].tolist() if one == one and one is not None] for part in both]
            assert values == [known["age"]] * 2


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_values_are_missing_however_they_are_written(missing):
    features = log(features={"land": ["de", missing, "fr", "de"], "age": [missing, 1, 2, 3]}).features
    assert features["land"].tolist() == ["de", None, "fr", "de"]
    np.testing.assert_array_equal(features["age"], [np.nan, 1.0, 2.0, 3.0])
    texts = (
        pd.Series(["de", missing, "fr", "de"], dtype="string") if missing is not pd.NaT else ["de", None, "fr", "de"]
    )
    assert log(features={"land": texts}).features["land"].tolist() == ["de", None, "fr", "de"]


def test_minus_zero_is_zero():
    known = log(features={"debt": [-0.0, 0.0, 1.0, -1.0]}).features
    assert len(known.table[0]) == 3
    assert not np.signbit(known["debt"][:2]).any()


def test_many_columns_of_many_values_have_the_right_rows(rng):
    columns = {f"c{i}": rng.integers(0, 50, 400).astype(float) for i in range(14)}  # 50^14 keys do not fit 64 bits
    features = Features.of(columns, 400)
    for name, values in columns.items():
        np.testing.assert_array_equal(features[name], values)
    assert features.n_rows == len(set(zip(*(column.tolist() for column in columns.values()), strict=True)))


def test_indexing_and_adding_keep_what_is_known(full):
    part = full[[3, 1]]
    assert part.features["country"].tolist() == ["de", None]
    assert part.persons.tolist() == ["ann", "bob"]
    assert part.ended.tolist() == ["unknown", "left"]
    both = full[:2] + full[2:]
    assert both == full
    assert full != log(features=FEATURES, persons=["ann", "bob", None, "bob"])
    pieces = list(full.chunks(3))
    assert pieces[0] + pieces[1] == full
    with pytest.raises(InvalidArgument, match="both logs must have features, or none"):
        full + log()
    with pytest.raises(InvalidArgument, match="both logs must have the same features"):
        log(features=FEATURES) + log(features={"age": [1, 2, 3, 4]})
    with pytest.raises(InvalidArgument, match="must hold text or numbers in both logs"):
        log(features={"age": ["a", "b", "c", "d"]}) + log(features={"age": [1, 2, 3, 4]})


def test_persons_are_ids_and_strangers_have_their_own():
    assert log(persons=[7, 7, 9, 2]).persons.tolist() == [7, 7, 9, 2]
    assert log(persons=[7.0, np.nan, np.nan, 2.0]).persons.tolist() == [7, None, None, 2]
    numbers = person_numbers(log(persons=["a", None, None, "a"]).persons)
    assert numbers[0] == numbers[3]
    assert len(set(numbers.tolist())) == 3
    with pytest.raises(InvalidArgument, match="persons must hold one id for each of the 4 sessions"):
        log(persons=[1, 2])
    with pytest.raises(InvalidData, match="persons must be all integers or all text, got values of int, str"):
        log(persons=["a", 1, 2, 3])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([2**70, 1, 2, 3], "persons must be integers of 64 bits or text, got 1180591620717411303424"),
        ([2**70, None, 2, 3], "persons must be integers of 64 bits or text"),
        ([np.inf, 1.0, 2.0, 3.0], "persons must be all integers or all text, got values of float"),
        ([1.5, 1.0, 2.0, 3.0], "persons must be all integers or all text, got values of float, int"),
    ],
)
def test_persons_that_are_refused(given, message):
    with pytest.raises(InvalidData, match=message):
        log(persons=given)


LONG = [2**60 + 1, 2**60, 2**60 + 2]  # the same number in floating point


@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_every_digit_of_a_person_counts(tmp_path, form):
    frame = rows(who=[LONG[i] for i in (0, 0, 1, 2, 2, 2)])
    names = {"session": "session", "arm": "arm", "reward": "reward", "person": "who"}
    if form == "frame":
        found = Sessions.from_frame(frame, **names)
    elif form == "csv":
        frame.to_csv(tmp_path / "log.csv", index=False)
        found = Sessions.read(tmp_path / "log.csv", **names)
    else:
        frame.to_parquet(tmp_path / "log.parquet")
        found = Sessions.read(tmp_path / "log.parquet", **names)
    assert sorted(found.persons.tolist()) == sorted(LONG)


@pytest.mark.parametrize(
    ("cells", "persons"),
    [
        (["7", "", "8"], [7, None, 8]),
        (["7.0", "", "8"], [7, None, 8]),  # a column with missing values holds integers as floats
        (["1.5", "1.7", "1.5"], ["1.5", "1.7", "1.5"]),
        (["inf", "7", "8"], ["inf", "7", "8"]),
        (["1e300", "7", "8"], ["1e300", "7", "8"]),
        (["a", "7", "8"], ["a", "7", "8"]),
    ],
)
def test_persons_of_a_csv_file_are_integers_where_all_are(tmp_path, cells, persons):
    lines = [f"{session},0,1,{cell}" for session, cell in enumerate(cells)]
    (tmp_path / "log.csv").write_text("\n".join(["session,arm,reward,who", *lines]))
    assert Sessions.read(tmp_path / "log.csv", person="who").persons.tolist() == persons


@pytest.mark.parametrize(
    ("ended", "codes"),
    [
        (["unknown", "left", "left", "unknown"], [UNKNOWN, LEFT, LEFT, UNKNOWN]),
        (["left", "went on", "left", "went on"], [LEFT, WENT_ON, LEFT, WENT_ON]),
        ([True, False, True, True], [LEFT, WENT_ON, LEFT, LEFT]),
        ([1.0, 0.0, 1.0, 0.0], [LEFT, WENT_ON, LEFT, WENT_ON]),
        ([None, "left", "left", None], [UNKNOWN, LEFT, LEFT, UNKNOWN]),
    ],
)
def test_how_sessions_ended(ended, codes):
    assert log(ended=ended).endings.tolist() == codes


@pytest.mark.parametrize("ended", [
    ["unknown", "left", "left", "left"],  # at the limit one is known
    ["unknown", "left", "unknown", "unknown"],  # one below the limit is unknown
    ["left", "unknown", "left", "left"],
    ["unknown", "left", "left", "went on"],
])  # fmt: skip
def test_an_end_that_is_unknown_of_some_only_is_refused(ended):
    with pytest.raises(InvalidData, match=r"only of all sessions at the limit of the log.*give limit=3 instead"):
        log(ended=ended)


def test_other_words_for_an_end_are_refused():
    with pytest.raises(InvalidData, match=r"ended must be 'left', 'went on' or 'unknown'.*got 'bored'"):
        log(ended=["left", "left", "left", "bored"])


def test_the_fingerprint_sees_what_is_known(full):
    found = {
        Fingerprint.of(one).checksum
        for one in (
            full,
            log(),
            log(features=FEATURES),
            log(persons=[1, 2, 3, 4]),
            log(persons=[1, 2, 3, 3]),
            log(ended=["left"] * 4),
            log(ended=["went on"] * 4),
        )
    }
    assert len(found) == 7
    assert Fingerprint.of(full) == Fingerprint.of(full[[2, 0, 3, 1]])


def test_a_log_without_the_columns_asked_for_has_one_row_for_all():
    features = log(features=FEATURES).features.only(["city"])
    assert (len(features), features.n_rows, features.rows.tolist()) == (0, 1, [0] * 4)


def test_columns_of_a_frame_are_those_of_its_sessions():
    frame = rows(
        country=["fr", "fr", None, "de", None, "de"], age=[3, 3, 4, 5, 5, 5], who=["b", "b", "a", "b", "b", "b"],
        end=[None, "left", "left", None, None, "unknown"],
    )  # fmt: skip
    names = {"session": "session", "arm": "arm", "reward": "reward"}
    with pytest.warns(LmabWarning, match="1 session is taken after one of the same person that begins in a later row"):
        found = Sessions.from_frame(frame, **names, features=["country", "age"], person="who", ended="end")
    assert found.lengths.tolist() == [1, 3, 2]
    assert found.features["country"].tolist() == [None, "de", "fr"]  # a missing value says nothing
    assert found.features["age"].tolist() == [4.0, 5.0, 3.0]
    assert found.persons.tolist() == ["a", "b", "b"]
    assert found.ended.tolist() == ["left", "unknown", "left"]  # the last row says how it ended


def test_a_column_that_changes_within_a_session_names_the_session():
    frame = rows(country=["fr", "de", "de", "de", "de", "de"])
    with pytest.raises(InvalidData, match="'country' must have one value in a session, got several in session 9"):
        Sessions.from_frame(frame, session="session", arm="arm", reward="reward", features=["country"])
    frame = frame.assign(session=[f"s{one}" for one in frame["session"]])
    with pytest.raises(InvalidData, match="got several in session 's9'"):
        Sessions.from_frame(frame, session="session", arm="arm", reward="reward", features=["country"])


def test_a_column_that_is_not_there_and_names_that_are_none():
    with pytest.raises(InvalidData, match=r"no column 'Country'.*the feature may be 'country'"):
        Sessions.from_frame(
            rows(country=list("aabbbb")), session="session", arm="arm", reward="reward", features=["Country"]
        )
    with pytest.raises(InvalidArgument, match="features must be several names"):
        Sessions.from_frame(rows(), session="session", arm="arm", reward="reward", features="country")


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_written_logs_are_read_again(full, tmp_path, name):
    full.write(tmp_path / name)
    if name == "log.csv":
        again = Sessions.read(tmp_path / name, step="step", features=["country", "age"], person="person", ended="ended")
    else:
        again = Sessions.read(tmp_path / name)
    assert again == full


def test_a_feature_with_the_name_of_another_column_is_not_written(tmp_path):
    with pytest.raises(InvalidArgument, match="features must have other names than the columns of a log, got 'arm'"):
        log(features={"arm": [1, 2, 3, 4]}).write(tmp_path / "log.parquet")


def test_texts_of_a_csv_file_are_numbers_where_all_are(tmp_path):
    (tmp_path / "log.csv").write_text("session,arm,reward,age,zip\n1,a,1,30,02134\n2,b,0,,x\n")
    found = Sessions.read(tmp_path / "log.csv", features=["age", "zip"])
    np.testing.assert_array_equal(found.features["age"], [30.0, np.nan])
    assert found.features["zip"].tolist() == ["02134", "x"]


def test_json_lines_may_begin_without_a_value(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"session": 1, "arm": 0, "reward": 1, "c": null}\n{"session": 2, "arm": 1, "reward": 1, "c": "de"}\n'
    )
    assert Sessions.read(tmp_path / "log.jsonl", features=["c"]).features["c"].tolist() == [None, "de"]


def test_a_column_of_lists_is_no_feature(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"session": 1, "arm": 0, "reward": 1, "c": [1]}\n')
    with pytest.raises(InvalidData, match="column 'c' must hold text or numbers"):
        Sessions.read(tmp_path / "log.jsonl", features=["c"])


def test_a_limit_says_who_left(tmp_path):
    frame = rows()
    names = {"session": "session", "arm": "arm", "reward": "reward"}
    found = Sessions.from_frame(frame, **names, limit=3)
    assert found.ended.tolist() == ["left", "unknown", "left"]
    assert Sessions.from_frame(frame, **names, limit=4).ended.tolist() == ["left"] * 3
    assert Sessions.from_frame(frame, **names, limit=3, at_most=2).ended.tolist() == ["left", "went on", "left"]
    assert Sessions.from_frame(frame, **names, at_most=2).ended is None
    with pytest.raises(InvalidData, match="limit must be at least the longest session, which has 3 steps, got 2"):
        Sessions.from_frame(frame, **names, limit=2)
    with pytest.raises(InvalidArgument, match="ended and limit must not be given together"):
        Sessions.from_frame(rows(end=["left"] * 6), **names, ended="end", limit=3)


def test_events_know_the_person_and_that_a_pause_means_leaving():
    n = 300
    times = np.sort(np.random.default_rng(0).integers(0, 10**8, n))
    events = pa.table({"who": [f"p{i % 7}" for i in range(n)], "at": times, "arm": [i % 3 for i in range(n)],
                       "reward": [1.0] * n})  # fmt: skip
    found = Sessions.from_events(events, person="who", time="at", arm="arm", reward="reward", gap="1s")
    assert set(found.ended) == {"left"}
    assert set(found.persons) == {f"p{i}" for i in range(7)}
    few = events.slice(0, 5)  # of few sessions the last, which may go on, is more than 1%
    assert Sessions.from_events(few, person="who", time="at", arm="arm", reward="reward", gap="1s").ended is None


def test_sessions_of_a_person_are_in_the_order_of_time():
    at = pd.to_datetime(
        ["2024-01-03", "2024-01-04", "2024-01-02", "2024-01-01", "2024-01-01", "2024-01-01 01:00"], format="ISO8601"
    )
    frame = rows(at=at, who=["x"] * 6)
    names = {"session": "session", "arm": "arm", "reward": "reward", "step": "at", "person": "who"}
    with pytest.warns(LmabWarning, match="1 row has the same 'at'"):
        found = Sessions.from_frame(frame, **names)
    assert found.lengths.tolist() == [3, 1, 2]  # sessions 7, 5, 9
    others = frame.assign(who=["nine"] * 2 + ["five"] + ["seven"] * 3, end=["left"] * 2 + ["went on"] * 4)
    with pytest.warns(LmabWarning, match="1 row has the same 'at'"):
        found = Sessions.from_frame(others, **names, ended="end")
    assert found.persons.tolist() == ["seven", "five", "nine"]
    assert found.ended.tolist() == ["went on", "went on", "left"]
    late = rows(at=pd.to_datetime(["2024-01-01", "2024-01-09", "2024-01-02", *["2024-01-10"] * 3]), who=["x"] * 6)
    with pytest.warns(LmabWarning) as told:
        Sessions.from_frame(late, **names)
    assert any("1 session begins before the person's last one has ended" in str(one.message) for one in told)


def test_an_order_of_persons_that_is_not_that_of_the_rows_is_told():
    """Without times sessions are in the order of their ids, which says nothing where ids are hashes."""
    frame = rows(who=list("xxyxxx"))  # the sessions 9, 5 and 7
    names = {"session": "session", "arm": "arm", "reward": "reward", "person": "who"}
    with pytest.warns(LmabWarning, match="1 session is taken after one of the same person") as told:
        assert Sessions.from_frame(frame, **names).lengths.tolist() == [1, 3, 2]
    assert len(told) == 1
    Sessions.from_frame(frame.assign(session=[1, 1, 5, 7, 7, 7]), **names)  # rows in the order of the ids
    Sessions.from_frame(frame.assign(who=[None] * 6), **names)  # strangers never come back


def test_sessions_that_lose_all_their_steps_take_what_is_known_with_them():
    frame = rows(country=["fr", "fr", "it", "de", "de", "de"]).assign(reward=[1, 0, None, 0, 0, 1])
    with pytest.warns(LmabWarning, match="1 step has no reward"):
        found = Sessions.from_frame(
            frame, session="session", arm="arm", reward="reward", features=["country"], missing="drop"
        )
    assert found.features["country"].tolist() == ["de", "fr"]


@pytest.mark.parametrize("hashed", [False, True], ids=["names", "hashes"])
def test_every_stranger_has_a_number_of_his_own(hashed):
    names = np.array(["ann", None, "bob", None, "ann", None], object)
    persons = person_ids(names) if hashed else names
    assert person_numbers(persons).tolist() == [0, 1, 2, 3, 0, 4]


def test_sessions_are_out_of_order_from_one_row_on(tmp_path):
    """Session 2 stands one row before session 1 of the same person."""
    path = tmp_path / "log.csv"
    path.write_text("session,arm,reward,who\n2,0,1,ann\n1,0,0,ann\n")
    with pytest.warns(LmabWarning, match="1 session is taken after one of the same person"):
        Sessions.read(path, person="who")


def read_packed(folder):
    """Pack the log of a folder and read it back."""
    lmab.pack(folder / "log.csv", folder / "packed", features=["age"])
    return lmab.Packed(folder / "packed").load()


def test_a_few_words_in_a_column_of_numbers_are_missing_values(tmp_path):
    """One "unknown" among ages made a category of every age."""
    ages = [*range(20, 40), "unknown"]
    rows = [f"{number},{arm},1,{age}" for number, age in enumerate(ages) for arm in "ab"]
    (tmp_path / "log.csv").write_text("\n".join(["session,arm,reward,age", *rows]))
    with pytest.warns(LmabWarning, match="column 'age' must hold numbers or text, got numbers and 'unknown', read as"):
        log = lmab.Sessions.read(tmp_path / "log.csv", features=["age"])
    np.testing.assert_array_equal(log.features["age"], [*range(20, 40), np.nan])
    with pytest.warns(LmabWarning, match="read as missing"):
        packed = read_packed(tmp_path)
    np.testing.assert_array_equal(np.sort(packed.features["age"]), [*range(20, 40), np.nan])


def test_sizes_that_are_words_and_numbers_stay_text(tmp_path):
    sizes = ["38", "40", "42", "S", "M"]
    rows = [f"{number},a,1,{size}" for number, size in enumerate(sizes)]
    (tmp_path / "log.csv").write_text("\n".join(["session,arm,reward,size", *rows]))
    assert lmab.Sessions.read(tmp_path / "log.csv", features=["size"]).features["size"].tolist() == sizes
