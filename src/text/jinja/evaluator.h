// Runs the syntax tree of a template.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Maps the names of variables to values, and points to the outer scope that encloses it. Lifetime:
// the names lie in the template and in the variables given to it.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::unordered_map<std::string_view, Value> variables;
};

// Runs one rendering of a template. Threads: one at a time. Errors of all functions: RenderFailure.
class Evaluator {
 public:
  Evaluator(Heap& heap, std::chrono::system_clock::time_point now) : heap_(heap), now_(now) {}
  // Empties the scopes that macros hold on to, since these scopes may hold the macros and so keep
  // each other alive.
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Runs the template and returns its output. Lifetime: `body` and `variables` must outlive the
  // evaluator.
  std::string run(const ast::Body& body, const json::object& variables);
  // Returns the line of the template that is running; after a RenderFailure, the line that failed.
  [[nodiscard]] int line() const { return line_; }

  // Built-in filters, tests and functions call heap(), budget(), now(), apply_filter() and
  // apply_test().
  [[nodiscard]] Heap& heap() { return heap_; }
  [[nodiscard]] Budget& budget() { return heap_.budget(); }
  [[nodiscard]] std::chrono::system_clock::time_point now() const { return now_; }
  Value apply_filter(const std::string& name, const Value& input, Arguments& arguments);
  bool apply_test(const std::string& name, const Value& input, Arguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Counts how deep the template has nested while it lives. Macros can call themselves, so nesting
  // has a limit.
  class Nesting {
   public:
    explicit Nesting(Evaluator& evaluator);
    ~Nesting() { --evaluator_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Evaluator& evaluator_;
  };
  static constexpr int64_t kScopeSteps = 4;  // entering a scope counts as this many nodes

  Flow execute(const ast::Body& body);
  Flow execute(const ast::Data& node);
  Flow execute(const ast::Print& node);
  Flow execute(const ast::If& node);
  Flow execute(const ast::For& node);
  Flow execute(const ast::Set& node);
  Flow execute(const ast::SetBlock& node);
  Flow execute(const std::unique_ptr<const ast::Macro>& node);
  Flow execute(const ast::CallBlock& node);
  Flow execute(const ast::FilterBlock& node);
  Flow execute(const ast::Scoped& node);
  static Flow execute(const ast::Break& node);
  static Flow execute(const ast::Continue& node);
  // Runs `body` in a new scope and writes its output to `out`.
  Flow execute_captured(const ast::Body& body, TextBuilder& out);
  std::vector<Value> select_items(const ast::For& node);

  Value evaluate(const ast::Expression& expression);
  Value evaluate(const ast::Constant& node);
  Value evaluate(const ast::Name& node);
  Value evaluate(const ast::Member& node);
  Value evaluate(const ast::Subscript& node);
  Value evaluate(const ast::Slice& node);
  Value evaluate(const ast::Call& node);
  Value evaluate(const ast::Filter& node);
  Value evaluate(const ast::Test& node);
  Value evaluate(const ast::Unary& node);
  Value evaluate(const ast::Binary& node);
  Value evaluate(const ast::Compare& node);
  Value evaluate(const ast::Logic& node);
  Value evaluate(const ast::Concat& node);
  Value evaluate(const ast::Conditional& node);
  Value evaluate(const ast::ListLiteral& node);
  Value evaluate(const ast::DictLiteral& node);
  Arguments evaluate(const ast::CallArguments& node);
  // Applies the filter of a block, which has no input of its own, to the text of the block.
  Value filter_block(const ast::Expression& filter, Value text);

  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const Function& function, Arguments& arguments);
  void bind_parameters(const Function& function, Arguments& arguments);
  Value make_macro(const ast::Macro& macro);
  void assign(const ast::Target& target, const Value& value);
  void set(std::string_view name, Value value) {
    scope_->variables.insert_or_assign(name, std::move(value));
  }
  void enter_scope() {
    budget().spend(kScopeSteps);
    scope_ = std::make_shared<Scope>(Scope{std::move(scope_), {}});
  }
  void leave_scope() { scope_ = std::shared_ptr<Scope>(scope_->outer); }
  void emit(std::string_view text);
  void emit(const Value& value);
  void check_output() const;

  Heap& heap_;
  std::chrono::system_clock::time_point now_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> held_scopes_;  // scopes that macros hold on to
  TextBuilder* out_ = nullptr;
  const TextBuilder* whole_ = nullptr;  // the output of the template itself
  Value block_text_;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace encore::text::jinja
