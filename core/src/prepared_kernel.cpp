#include <attune/core/error.hpp>
#include <attune/core/prepared_kernel.hpp>

namespace attune {
namespace {

class NoArtifacts final : public Artifacts {
 public:
  std::optional<std::string> find(std::string_view) const override { return std::nullopt; }
  void keep(std::string_view, std::string_view) const override {}
};

}  // namespace

const Artifacts& no_artifacts() {
  static const NoArtifacts none;
  return none;
}

const Prepared* PreparedStore::get(const std::string& key, Make make) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Slot>& place = slots_[key];
    if (place == nullptr) place = std::make_unique<Slot>();
    if (place->product != nullptr) return place->product.get();
    slot = place.get();
  }
  const std::lock_guard making(slot->making);
  if (const Prepared* made = find(key)) return made;
  std::shared_ptr<const Prepared> product = make();
  const std::lock_guard lock(mutex_);
  slot->product = std::move(product);
  return slot->product.get();
}

const Prepared* PreparedStore::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(key);
  return found == slots_.end() ? nullptr : found->second->product.get();
}

void ErasedKernel::throw_not_prepared() const {
  throw ExecutionError(str(name(), ": run() was called without what prepare() makes"));
}

}  // namespace attune
