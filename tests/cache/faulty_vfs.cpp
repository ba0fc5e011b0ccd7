#include "faulty_vfs.hpp"

#include <new>
#include <stdexcept>

namespace attune::test {
namespace {

Fault armed;
int calls = 0;
sqlite3_vfs* under = nullptr;

/// What a call that may fail returns: the fault's code, or what `call` returns.
template <class Call>
int with_fault(Call&& call) {
  ++calls;
  const bool fails = armed.at > 0 && (armed.lasts ? calls >= armed.at : calls == armed.at);
  return fails ? armed.code : call();
}

/// A file of the VFS below, which stands right behind this.
struct File {
  sqlite3_file base;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }  // as szOsFile says
};

sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }

int close(sqlite3_file* file) { return real(file)->pMethods->xClose(real(file)); }
int read(sqlite3_file* file, void* to, int bytes, sqlite3_int64 offset) {
  return real(file)->pMethods->xRead(real(file), to, bytes, offset);
}
int write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
  return with_fault([&] { return real(file)->pMethods->xWrite(real(file), from, bytes, offset); });
}
int truncate(sqlite3_file* file, sqlite3_int64 size) {
  return with_fault([&] { return real(file)->pMethods->xTruncate(real(file), size); });
}
int sync(sqlite3_file* file, int flags) {
  return with_fault([&] { return real(file)->pMethods->xSync(real(file), flags); });
}
int file_size(sqlite3_file* file, sqlite3_int64* size) {
  return real(file)->pMethods->xFileSize(real(file), size);
}
int lock(sqlite3_file* file, int level) { return real(file)->pMethods->xLock(real(file), level); }
int unlock(sqlite3_file* file, int level) {
  return real(file)->pMethods->xUnlock(real(file), level);
}
int check_reserved_lock(sqlite3_file* file, int* result) {
  return real(file)->pMethods->xCheckReservedLock(real(file), result);
}
int file_control(sqlite3_file* file, int op, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), op, argument);
}
int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
int device_characteristics(sqlite3_file* file) {
  return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

const sqlite3_io_methods kMethods = {1,
                                     close,
                                     read,
                                     write,
                                     truncate,
                                     sync,
                                     file_size,
                                     lock,
                                     unlock,
                                     check_reserved_lock,
                                     file_control,
                                     sector_size,
                                     device_characteristics,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr};

int open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;  // nothing to close when it fails
  const int code =
      with_fault([&] { return under->xOpen(under, name, real(file), flags, out_flags); });
  if (code == SQLITE_OK) file->pMethods = &kMethods;
  return code;
}

int remove(sqlite3_vfs*, const char* name, int sync_folder) {
  return with_fault([&] { return under->xDelete(under, name, sync_folder); });
}

}  // namespace

void install_faulty_vfs() {
  if (under != nullptr) return;
  under = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs faulty = *under;
  faulty.pNext = nullptr;
  faulty.zName = "faulty";
  faulty.szOsFile = static_cast<int>(sizeof(File)) + under->szOsFile;
  faulty.xOpen = open;
  faulty.xDelete = remove;
  if (sqlite3_vfs_register(&faulty, 1) != SQLITE_OK) throw std::runtime_error("no faulty VFS");
}

void arm(const Fault& fault) {
  armed = fault;
  calls = 0;
}

bool fault_met() { return armed.at > 0 && calls >= armed.at; }

}  // namespace attune::test
