// From a source to an image: preprocess, find the kernels, compile and link.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/kernels_in_text.h"
#include "compiler/options.h"
#include "compiler/program.h"
#include "compiler/shared.h"

namespace pretend {
namespace {

namespace fs = std::filesystem;

// Of one run of g++; PRETEND_COMPILE_S.
int deadline_s() {
  const char* text = std::getenv("PRETEND_COMPILE_S");
  const int value = text ? std::atoi(text) : 0;
  return value > 0 ? value : 120;
}

// CuPy compiles this kernel, or on CUDA nothing at all, and makes the result part of the key of its
// cache.
constexpr char kWhichCompiler[] = "_cupy_preprocess_dummy_kernel_";

using Words = std::vector<std::string>;

void append(Words& to, const Words& more) { to.insert(to.end(), more.begin(), more.end()); }

// The folder that holds language/ and threads/.
fs::path sources() {
#ifdef PRETEND_SOURCES
  return PRETEND_SOURCES;
#else
  return fs::absolute(__FILE__).parent_path().parent_path();
#endif
}

// -fno-gnu-unique and -Bsymbolic: variables of templates, __shared__ ones among them, belong to one
// image. Symbols of threads/ stay undefined: the program that loads the image has them.
Words flags() {
  const std::string folder = sources();
  Words result = {"-std=gnu++20",
                  "-w",
                  "-O1",
                  "-fPIC",
                  "-fno-gnu-unique",
                  "-ffp-contract=off",
                  "-I" + folder,
                  "-I" + folder + "/language"};
#ifdef PRETEND_CUDA
  append(result, {"-DPRETEND_CUDA", "-DPRETEND_LANES=" + std::to_string(PRETEND_LANES),
                  "-I" + folder + "/cuda/include"});
#endif
  append(result, extra_flags());
  return result;
}

std::string answer_which_compiler() {
  Words files;
  for (const char* part : {"language", "threads"})
    for (const auto& entry : fs::recursive_directory_iterator(sources() / part))
      if (entry.path().extension() == ".h") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string text = __VERSION__;
  for (const std::string& file : files) text += read_file(file);
  for (const std::string& flag : flags()) text += flag + "\n";
  return "// pretended hipRTC " + std::to_string(std::hash<std::string>()(text)) + "\n";
}

std::string in_quotes(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c != '\n') result += c;
  }
  return result + "\"";
}

void write_headers(const Program& program, const TemporaryFolder& folder) {
  for (const auto& [name, text] : program.headers) {
    const fs::path path = fs::path(name).lexically_normal();
    if (path.is_absolute() || path.empty() || *path.begin() == "..")
      throw std::runtime_error("a header must have a relative name: " + name);
    const fs::path file = folder.file("include") / path;
    fs::create_directories(file.parent_path());
    write_file(file, text);
  }
}

// Entries for the kernels with C linkage and for what was asked for by an expression.
std::string entries(Program& program, const Words& names) {
  std::string text;
  for (const std::string& name : names)
    text += "\n# 1 " + in_quotes("kernel " + name) + entry_of(name, name);
  for (size_t i = 0; i < program.expressions.size(); ++i) {
    const std::string& asked = program.expressions[i];
    const std::string expression = asked[0] == '&' ? asked.substr(1) : asked;
    const bool plain = std::all_of(expression.begin(), expression.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (asked[0] == '&' && plain) {  // a variable: its symbol is its name
      program.lowered[asked] = expression;
      continue;
    }
    if (plain && std::find(names.begin(), names.end(), expression) != names.end()) {
      program.lowered[asked] = expression;
      continue;
    }
    const std::string name = "expression_" + std::to_string(i);
    text += "\n# 1 " + in_quotes("name expression " + expression) +
            entry_of(name, "(" + expression + ")");
    program.lowered[asked] = name;
  }
  return text;
}

std::string image_of(const std::string& object) {
  uint64_t size = object.size();
  return "PRETEND:" + std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + object;
}

void erase_all(std::string& text, const std::string& part) {
  for (size_t at = 0; (at = text.find(part, at)) != text.npos;) text.erase(at, part.size());
}

// What an object depends on: not the folders, which are others in each process.
std::string key_of(const Words& command, const std::string& text, const Program& program,
                   const TemporaryFolder& folder) {
  std::string key = __VERSION__;
  for (const std::string& word : command) key += "\n" + word;
  key += "\n" + text;
  erase_all(key, folder.file(""));
  const std::string place = fs::path(program.name).parent_path();
  if (place.size() > 1) erase_all(key, place);
  return key;
}

hiprtcResult preprocess_and_compile(Program& program, const Words& options) {
  const TemporaryFolder folder;
  write_headers(program, folder);
  const std::string source = folder.file("source.hip"), errors = folder.file("errors");
  write_file(source, "#line 1 " + in_quotes(program.name) + "\n" + program.source + "\n");

  Words words = {"g++", "-E", "-x", "c++", "-DPRETEND_MARKS"};
  append(words, flags());
  append(words, options);
  append(words, {"-I" + folder.file("include"), "-include", "language/prelude.h", source});
  Output output = run(words, folder.file("preprocessed"), errors, deadline_s());
  program.log += output.errors;
  if (!output.succeeded) return HIPRTC_ERROR_COMPILATION;

  const Kernels kernels = find_kernels(read_file(folder.file("preprocessed")));
  const std::string unit = folder.file("kernels.ii"), object = folder.file("kernels.so");
  const std::string text = kernels.text + entries(program, kernels.names);
  words = {"g++", "-shared", "-Wl,-Bsymbolic"};
  append(words, flags());
  append(words, options);
  const SharedObject shared(key_of(words, text, program, folder), deadline_s());
  std::string bytes = shared.bytes();
  if (bytes.empty()) {
    write_file(unit, text);
    append(words, {"-x", "c++-cpp-output", unit, "-o", object});
    output = run(words, folder.file("nothing"), errors, deadline_s());
    program.log += output.errors;
    bytes = read_file(object);
    if (!output.succeeded || bytes.empty()) return HIPRTC_ERROR_COMPILATION;
    shared.keep(bytes);
  }
  program.image = image_of(bytes);
  program.compiled = true;
  return HIPRTC_SUCCESS;
}

}  // namespace

hiprtcResult compile(Program& program, const std::vector<std::string>& options) {
  const Options translated = translate(options);
  if (!translated.unknown.empty()) {
    program.log += "pretended hipRTC: unknown option " + translated.unknown + "\n";
    return HIPRTC_ERROR_INVALID_OPTION;
  }
  if (program.source.empty() || program.source.find(kWhichCompiler) != std::string::npos) {
    program.image = answer_which_compiler();
    program.compiled = true;
    return HIPRTC_SUCCESS;
  }
  return preprocess_and_compile(program, translated.for_gxx);
}

}  // namespace pretend
