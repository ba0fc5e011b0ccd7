// The golden cases of tests/data through attune.h: the same bits as the C++ calls that
// tests/ops/golden_test.cpp holds against what is expected.
#include <algorithm>
#include <deque>
#include <filesystem>

#include <attune/attune.hpp>
#include <attune/io/safetensors.hpp>

#include "bindings/c/c_tensor.hpp"
#include "support/heuristic_context.hpp"

namespace attune::test {
namespace {

/// A file's tensors, and outputs of the call, by name.
class FileCall {
 public:
  explicit FileCall(const std::filesystem::path& path) : file_(io::read_safetensors(path)) {}

  const std::string& op() const { return file_.attributes.at("op"); }
  const io::TensorFile& file() const { return file_; }
  bool has(const std::string& name) const { return file_.tensors.contains(name); }

  const attune_tensor* input(const std::string& name) {
    const auto found = file_.tensors.find(name);
    return found == file_.tensors.end() ? nullptr : added(found->second);
  }
  /// One like `like`, of a type; NULL where that is not in the file.
  const attune_tensor* output(const std::string& name, const std::string& like, DType dtype) {
    const auto found = file_.tensors.find(like);
    if (found == file_.tensors.end()) return nullptr;
    return added(outputs_.emplace(name, Tensor(dtype, found->second.shape())).first->second);
  }

  std::int64_t integer(const char* attribute) const {
    const auto found = file_.attributes.find(attribute);
    return found == file_.attributes.end() ? 0 : std::stoll(found->second);
  }
  const double* scale() {
    const auto found = file_.attributes.find("scale");
    if (found == file_.attributes.end()) return nullptr;
    scale_ = std::stod(found->second);
    return &scale_;
  }
  bool is_reverse() const {
    const auto found = file_.attributes.find("reverse");
    return found != file_.attributes.end() && found->second != "false" && found->second != "0" &&
           found->second != "no";
  }
  DType dtype() const { return file_.tensors.at("q").dtype(); }

  /// Each output has the bits that the op's own case of the file has.
  void expect_bits(const std::string& op, std::size_t outputs) {
    Context& context = heuristic_context();
    const std::unique_ptr<Case> bound =
        context.registry().op(op).bind_case(file_.tensors, file_.attributes, cpu_device());
    bound->reset(std::byte{0xff});
    Executor(context).run(*bound, {.device = &cpu_device(), .platform = kReferencePlatform});
    std::size_t compared = 0;
    for (const auto& [name, tensor] : copy_outputs(*bound, cpu_device())) {
      const auto found = outputs_.find(name);
      if (found == outputs_.end()) continue;
      EXPECT_EQ(to_doubles(found->second.view()), to_doubles(tensor.view())) << op << ": " << name;
      ++compared;
    }
    EXPECT_EQ(compared, outputs);
    outputs_.clear();
  }

 private:
  const attune_tensor* added(Tensor& tensor) { return tensors_.emplace_back(tensor); }

  io::TensorFile file_;
  TensorMap outputs_;
  std::deque<CTensor> tensors_;
  double scale_ = 0;
};

attune_call reference_call() {
  auto call = sized<attune_call>();
  call.platform = "reference";
  return call;
}

attune_attention_args inputs_of(FileCall& file) {
  auto args = sized<attune_attention_args>();
  args.flags = file.is_reverse() ? ATTUNE_REVERSE : 0;
  args.q = file.input("q");
  args.k = file.input("k");
  args.v = file.input("v");
  args.g = file.input("g");
  args.gk = file.input("gk");
  args.gv = file.input("gv");
  args.slopes = file.input("slopes");
  args.layer_idx = file.integer("layer_idx");
  args.num_layers = file.integer("num_layers");
  // A layer's decay is written out in these files as well.
  if (args.num_layers == 0) args.g_gamma = file.input("g_gamma");
  args.initial_state = file.input("initial_state");
  args.cu_seqlens = file.input("cu_seqlens");
  args.scale = file.scale();
  return args;
}

/// Whether the op's case of the file gives this gradient too: it has one for each gate given.
void check_attention(FileCall& file) {
  const attune_call call = reference_call();
  attune_attention_args args = inputs_of(file);
  args.o = file.output("o", "expect.o", file.dtype());
  args.final_state = file.output("final_state", "expect.final_state", DType::kF32);
  ASSERT_EQ(attune_attention(&args, &call), ATTUNE_OK) << attune_last_error();
  file.expect_bits(file.op(), args.final_state != nullptr ? 2U : 1U);

  if (!file.has("do")) return;
  auto grads = sized<attune_attention_grads>();
  grads.d_o = file.input("do");
  grads.dfinal_state = file.input("dfinal_state");
  std::size_t outputs = 0;
  const auto gradient = [&](const std::string& name, const attune_tensor* of, DType dtype) {
    if (of == nullptr) return of;
    ++outputs;
    return file.output("d" + name, name, dtype);
  };
  grads.dq = gradient("q", args.q, file.dtype());
  grads.dk = gradient("k", args.k, file.dtype());
  grads.dv = gradient("v", args.v, file.dtype());
  grads.dg = gradient("g", args.g, DType::kF32);
  grads.dg_gamma = gradient("g_gamma", args.g_gamma, DType::kF32);
  grads.dgk = gradient("gk", args.gk, DType::kF32);
  grads.dgv = gradient("gv", args.gv, DType::kF32);
  grads.dslopes = gradient("slopes", args.slopes, DType::kF32);
  grads.dinitial_state = gradient("initial_state", args.initial_state, DType::kF32);
  ASSERT_EQ(attune_attention_backward(&args, &grads, &call), ATTUNE_OK) << attune_last_error();
  file.expect_bits(file.op() + ".backward", outputs);
}

void check_decode(FileCall& file) {
  const attune_call call = reference_call();
  auto args = sized<attune_decode_args>();
  args.q = file.input("q");
  args.k = file.input("k");
  args.v = file.input("v");
  args.slopes = file.input("slopes");
  args.slot_indices = file.input("slot_indices");
  args.scale = file.scale();
  args.o = file.output("o", "expect.o", file.dtype());
  Tensor pool = to_host(file.file().tensors.at("kv_cache"), cpu_device());
  const CTensor state(pool);
  args.state = state;
  ASSERT_EQ(attune_decode(&args, &call), ATTUNE_OK) << attune_last_error();
  file.expect_bits(file.op(), 1);
  const std::vector<double> expected = to_doubles(file.file().tensors.at("expect.kv_cache").view());
  EXPECT_LE(relative_rms_error(to_doubles(pool.view()), expected), 2e-5);
}

TEST(CGolden, EveryFileHasTheBitsOfTheCxxCall) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ATTUNE_TEST_DATA)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().filename().string());
    FileCall file(entry.path());
    if (file.op().ends_with("decode")) {
      check_decode(file);
    } else {
      check_attention(file);
    }
    ++files;
  }
  EXPECT_EQ(files, 27U);
}

}  // namespace
}  // namespace attune::test
