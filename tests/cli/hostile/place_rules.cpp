// What the manual says of each thing in each place, by rule.
#include "places.hpp"

namespace attune::test {
namespace {

bool is_database(const std::string& file) { return file.ends_with(".db"); }

/// Whether a reader that may not write gives the rows of the file.
bool readable(const Thing& thing) {
  using State = DatabaseStates::State;
  return thing.state == State::kSound || thing.state == State::kQuietWal;
}

/// Whether the user's own database can be read, or changed: what a killed writer left is undone.
bool recoverable(const Thing& thing) {
  using State = DatabaseStates::State;
  if (readable(thing)) return true;
  return thing.nature == Nature::kDatabase &&
         (thing.state == State::kHotJournal || thing.state == State::kWalOfTheDead);
}

bool is_absent(const Thing& thing) { return thing.nature == Nature::kNothing; }
bool may_be_changed(const Thing& thing) {
  const bool blank = is_absent(thing) || thing.nature == Nature::kEmpty;
  return blank || (thing.nature == Nature::kDatabase && recoverable(thing));
}
bool is_empty(const Thing& thing) {
  return thing.nature == Nature::kEmpty || thing.nature == Nature::kStandardOutput;
}

}  // namespace

bool can_be_at(const Place& place, const Thing& thing) {
  // A shell waits for a writer of a FIFO, and cannot open some other things at all.
  if (place.by_standard_input) {
    return thing.nature != Nature::kClosed && !is_absent(thing) &&
           (thing.nature != Nature::kNoFile || thing.name == "a folder");
  }
  // What is beside it could not be written, and that is another test.
  return place.use != Use::kBeside || thing.name.find("read-only folder") == std::string::npos;
}

std::set<int> documented_statuses(const Place& place, const Thing& thing) {
  const std::set<int> done{place.done}, refused{place.refused}, absent{place.absent};
  const std::set<int> either{place.done, place.refused, place.absent};
  const bool blank = is_absent(thing) || thing.nature == Nature::kEmpty;
  switch (place.use) {
    case Use::kRead:
      // A folder is where many processes write their counters: here none has.
      if (place.arguments[0] == "stats" && thing.name.ends_with("a folder")) return {1};
      return refused;
    case Use::kReadSpecs:
      if (place.by_standard_input && thing.name.find("/dev/null") != std::string::npos) return done;
      return is_empty(thing) ? done : refused;
    case Use::kReadNamed:
      if (!is_database(place.file)) return is_empty(thing) ? done : refused;
      return readable(thing) ? done : refused;
    case Use::kReadUser:
      if (place.arguments[0] == "doctor" && thing.nature == Nature::kReadOnly) {
        return recoverable(thing) ? std::set{1} : refused;  // which it warns of
      }
      return is_absent(thing) ? absent : recoverable(thing) ? done : refused;
    case Use::kChangeUser:
      return is_absent(thing) ? absent : may_be_changed(thing) ? done : refused;
    case Use::kInEffect:
      if (place.file == "mine.db" && recoverable(thing)) return done;
      // In the site's path a folder stands for the databases in it, and here it has none.
      if (is_absent(thing) || thing.name.ends_with("a folder")) return either;
      return readable(thing) ? done : refused;
    case Use::kReplace:
      if (is_database(place.file)) {
        if (thing.beside_nothing) return either;
        const bool made_read_only = thing.name == "a database, read-only";
        // What it holds is kept beside it, and so has to be read.
        const bool kept = is_absent(thing) || readable(thing);
        if (place.arguments[1] == "use" && !kept) return refused;
        return may_be_changed(thing) || made_read_only ? done : refused;
      }
      return blank || thing.nature == Nature::kSink ? done : refused;
    case Use::kReplacePage:
      return blank || thing.nature == Nature::kSink ? done : refused;
    case Use::kRecord:
      if (thing.nature == Nature::kStandardOutput) return either;  // empty, when it begins
      return blank ? done : refused;
    case Use::kTuneInto:
    case Use::kRecordQuiet:
    case Use::kBeside:
      return done;
  }
  return {};
}

bool may_change(const Place& place, const Thing& thing) {
  const bool blank = is_absent(thing) || thing.nature == Nature::kEmpty;
  switch (place.use) {
    case Use::kRead:
    case Use::kReadSpecs:
    case Use::kReadNamed:
      return false;
    case Use::kReadUser:
    case Use::kInEffect:  // the site's is never written, nor is anything beside it
      return place.file == "mine.db" && thing.nature == Nature::kDatabase && !readable(thing);
    case Use::kChangeUser:
    case Use::kTuneInto:
      return blank || thing.nature == Nature::kDatabase;
    case Use::kReplace:
      return blank || (is_database(place.file) && thing.state.has_value());
    case Use::kReplacePage:
    case Use::kRecord:
    case Use::kRecordQuiet:
      return blank;
    case Use::kBeside:
      if (place.file.ends_with(".lock")) return blank;
      // One that is named as attune's own, by a process that has ended, is taken for its own.
      return place.file.ends_with(".attune-tmp") && thing.nature != Nature::kNoFile;
  }
  return false;
}

}  // namespace attune::test
