// SQLite's way to the disk with a fault in it: the n-th open, write, sync, truncation or deletion
// fails.
#pragma once

#include <sqlite3.h>

#include <string>

namespace attune::test {

struct Fault {
  int at = 0;            // which call fails, from 1; 0: none
  int code = SQLITE_OK;  // with what: SQLITE_IOERR_WRITE, SQLITE_FULL, ...
  bool lasts = false;    // all calls after it fail too
};

/// Makes every connection that is opened from now on go through it. Once a process.
void install_faulty_vfs();

/// Counts anew, towards this fault.
void arm(const Fault& fault);

/// Whether the fault has been met since arm().
bool fault_met();

}  // namespace attune::test
