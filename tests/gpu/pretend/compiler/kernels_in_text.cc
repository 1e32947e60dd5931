#include "compiler/kernels_in_text.h"

#include <cctype>
#include <string_view>

namespace pretend {
namespace {

constexpr char kExported[] = "__attribute__((visibility(\"default\")))";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Walks over the text token by token; a token is a word, a literal or one character.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Kernels scan() {
    for (size_t begin; next(begin);) take(begin);
    result_.text.append(text_.substr(copied_));
    return result_;
  }

 private:
  bool next(size_t& begin) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#' && (at_ == 0 || text_[at_ - 1] == '\n')) {
        at_ = text_.find('\n', at_);  // where the next line comes from
        if (at_ == text_.npos) at_ = text_.size();
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else {
        break;
      }
    }
    begin = at_;
    if (at_ >= text_.size()) return false;
    if (text_.substr(at_, 2) == "R\"") {
      skip_raw_string();
    } else if (is_word(text_[at_])) {
      // A quote in a number separates digits.
      const bool number = std::isdigit(static_cast<unsigned char>(text_[at_]));
      while (at_ < text_.size() && (is_word(text_[at_]) || (number && text_[at_] == '\''))) ++at_;
    } else if (text_[at_] == '"' || text_[at_] == '\'') {
      skip_quoted(text_[at_]);
    } else {
      ++at_;
    }
    return true;
  }

  void skip_quoted(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (++at_ > text_.size()) at_ = text_.size();
  }

  void skip_raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == text_.npos) {
      at_ = text_.size();
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
    const size_t end = text_.find(close, open);
    at_ = end == text_.npos ? text_.size() : end + close.size();
  }

  void take(size_t begin) {
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (token == "{") {
      scopes_.push_back(before_ == "\"C\"");
      if (!bounds_.empty()) check_bounds();
    } else if (token == ";") {
      bounds_.clear();  // of a declaration
    } else if (token == "PRETEND_BOUNDS") {
      take_bounds(begin);
    } else if (token == "}") {
      if (!scopes_.empty()) scopes_.pop_back();
    } else if (token == "PRETEND_KERNEL") {
      const bool c_linkage = before_ == "\"C\"" || (!scopes_.empty() && all_c_linkage());
      replace(begin, at_, kExported);
      if (c_linkage) note_name();
    } else if (token == "PRETEND_SHARED") {
      if (before_ == "extern")
        replace_dynamic(before_at_);
      else
        replace(begin, at_, "static thread_local");
    }
    before_ = token;
    before_at_ = begin;
  }

  bool all_c_linkage() const {
    for (const bool c : scopes_)
      if (!c) return false;
    return true;
  }

  // The name is the last word before the first parenthesis that is not one of an attribute.
  void note_name() {
    std::string_view word;
    for (size_t begin; next(begin);) {
      const std::string_view token = text_.substr(begin, at_ - begin);
      if (token == "(") {
        if (word != "__attribute__" && word != "alignas") break;
        skip_parentheses();
      } else if (token == "PRETEND_BOUNDS") {
        take_bounds(begin);
      } else if (is_word(token[0])) {
        word = token;
      } else if (token == ";" || token == "{") {
        return;
      }
    }
    for (const std::string& known : result_.names)
      if (known == word) return;  // declared before
    result_.names.emplace_back(word);
  }

  // __launch_bounds__(MOST THREADS, ...) goes; the first number is looked at when the kernel runs.
  void take_bounds(size_t from) {
    size_t begin = 0, depth = 0, end = 0;
    while (next(begin)) {
      const char c = text_[begin];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ',' && depth == 1 && !end) end = begin;
      if ((c == ')' || c == ']' || c == '}') && !--depth) break;
    }
    const size_t open = text_.find('(', from) + 1;
    bounds_ = text_.substr(open, (end ? end : begin) - open);
    replace(from, at_, "");
  }

  void check_bounds() {
    replace(at_, at_, " if (!pretend::keeps_bounds(" + bounds_ + ")) return;");
    bounds_.clear();
  }

  void skip_parentheses() {
    int depth = 1;
    for (size_t begin; depth && next(begin);) {
      if (text_[begin] == '(') ++depth;
      if (text_[begin] == ')') --depth;
    }
  }

  // `extern MARK T name[];` becomes `T* name = ...;`: it has no size before the launch.
  void replace_dynamic(size_t from) {
    const size_t end = text_.find(';', at_), bracket = text_.find('[', at_);
    if (end == text_.npos || bracket == text_.npos || bracket > end) return;
    size_t name_end = bracket;
    while (name_end > at_ && std::isspace(static_cast<unsigned char>(text_[name_end - 1])))
      --name_end;
    size_t name = name_end;
    while (name > at_ && is_word(text_[name - 1])) --name;
    std::string type(text_.substr(at_, name - at_));
    const size_t aligned = type.find("__align__");
    if (aligned != std::string::npos) type.erase(aligned, type.find(')', aligned) + 1 - aligned);
    const std::string pointer = "std::add_pointer_t<" + type + ">";
    replace(from, end,
            pointer + " " + std::string(text_.substr(name, name_end - name)) + " = static_cast<" +
                pointer + ">(pretend::dynamic_shared_memory())");
    at_ = end;
  }

  void replace(size_t from, size_t to, const std::string& by) {
    result_.text.append(text_.substr(copied_, from - copied_));
    result_.text.append(by);
    copied_ = to;
  }

  std::string_view text_;
  size_t at_ = 0, copied_ = 0, before_at_ = 0;
  std::string_view before_;   // the token before
  std::string bounds_;        // of the kernel whose head this is; "" where it has none
  std::vector<bool> scopes_;  // braces that are open: is it one of extern "C"?
  Kernels result_;
};

}  // namespace

Kernels find_kernels(const std::string& preprocessed) { return Scanner(preprocessed).scan(); }

std::string entry_of(const std::string& name, const std::string& kernel) {
  const std::string of = "pretend::Entry<&" + kernel + ">";
  const std::string exported = "\nextern \"C\" " + std::string(kExported) + " ";
  return exported + "void pretend_entry_" + name + "(void** arguments) { " + of +
         "::call(arguments); }" + exported + "const size_t* pretend_argument_sizes_" + name +
         "() { return " + of + "::sizes; }\n";
}

}  // namespace pretend
