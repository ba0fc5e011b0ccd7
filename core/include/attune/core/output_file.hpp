// A file that attune makes, as a whole: whoever looks finds what was there before or all of the new
// one, and what is not attune's is not written over.
//
//   OutputFile file(path, kTensorFiles);   // looks at what is there; nothing is changed yet
//   file.write(header);
//   file.write(data);
//   file.commit();                         // takes the path's place
//
// What may be there:
//
//   nothing                    the file is made, mode 0666 less the umask
//   a regular file             replaced when it is empty or of the kind that is written; it keeps
//                              its owner, group and mode
//   a symbolic link            followed; one that leads nowhere is refused
//   /dev/null, zero, full      written to
//   anything else              refused: a folder, FIFO, socket or other device, a file of another
//                              kind, one that may not be written, one that standard output or
//                              error goes to
//
// The bytes go to "<path>.<pid>.<n>.attune-tmp" beside it, under a lock that ends with the process;
// those that killed writers left behind are removed by the next one that writes to the same path.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <attune/core/input_file.hpp>

namespace attune {

/// Whether standard output or error goes to the file, as where a shell has redirected them: writing
/// to it, or replacing it, would spoil what is printed there, and be spoiled by that.
bool is_standard_stream(const struct stat& status);

class OutputFile {
 public:
  /// What may be replaced besides empty files.
  struct Kind {
    std::string_view name;                   // for the message: "tensor file"
    bool (*is_ours)(std::string_view head);  // of a file that begins so: 4 KiB, or all of it
    bool even_read_only = false;             // as where attune itself makes them so
  };

  /// Throws FileError when the path may not be written, for one of the reasons above.
  OutputFile(const std::string& path, const Kind& kind);
  /// Without commit() the path is as it was.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws FileError, as on a full disk.
  void write(std::string_view bytes);

  /// The file's mode from commit() on, instead of the one above.
  void set_mode(mode_t mode) { mode_ = mode; }

  /// Brings it to the disk and puts it in place. Throws FileError; the path is then as it was.
  void commit();

 private:
  void look_at_target(const Kind& kind);
  void make_temporary();
  void remove_temporaries_of_the_dead() const;
  [[noreturn]] void fail(std::string_view what, int error) const;

  std::string path_;       // as given, for messages
  std::string target_;     // without links
  std::string temporary_;  // "" when the target is written to directly
  int descriptor_ = -1;
  bool exists_ = false;
  uid_t owner_ = 0;
  gid_t group_ = 0;
  mode_t mode_ = 0;  // 0: what the umask leaves
};

}  // namespace attune
