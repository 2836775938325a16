"""Copy the SQLite store of lmab while the service runs, check the copy, and keep the newest copies.

Usage: backup.py STORE FOLDER [KEEP]. A copy that fails or is damaged removes no earlier one.
"""

import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote


def back_up(store: Path, folder: Path, keep: int) -> Path:
    """Write `FOLDER/events-TIME.db` and remove all but the newest `keep` copies; return the new one."""
    if keep < 1:
        raise ValueError(f"KEEP must be at least 1, got {keep}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{store.stem}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.db"
    draft = folder / f".{name}.part"
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        address = f"file:{quote(str(store))}?mode=rw"  # a mistyped name is an error, not an empty store
        with closing(sqlite3.connect(address, uri=True)) as source, closing(sqlite3.connect(draft)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a write-ahead log beside it
            (answer,) = copy.execute("PRAGMA integrity_check").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(f"the copy is damaged: {answer}")
        draft.rename(folder / name)
        note = "INSERT INTO settings VALUES('backup', ?) ON CONFLICT(name) DO UPDATE SET value=excluded.value"
        with closing(sqlite3.connect(address, uri=True, timeout=10)) as source, source:
            source.execute(note, (repr(time.time()),))  # the service shows it as lmab_last_backup_timestamp_seconds
    finally:
        draft.unlink(missing_ok=True)
    for old in sorted(folder.glob(f"{store.stem}-*Z.db"))[:-keep]:
        old.unlink()
    return folder / name


if __name__ == "__main__":
    print(back_up(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 28))
