#include "text/jinja/evaluator.h"

#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"

namespace encore::text::jinja {

Evaluator::Nesting::Nesting(Evaluator& evaluator) : evaluator_(evaluator) {
  const int most = evaluator.budget().limits().max_depth;
  if (++evaluator_.depth_ > most)
    throw RenderFailure(FailureKind::kLimit, fmt::format("goes more than {} levels deep", most));
}

Evaluator::~Evaluator() {
  for (const auto& scope : held_scopes_)
    scope->variables.clear();
}

std::string Evaluator::run(const ast::Body& body, const json::object& variables) {
  scope_ = std::make_shared<Scope>();
  for (const auto& [key, value] : variables)
    set(std::string_view(key.data(), key.size()), heap_.from_json(value));
  enter_scope();
  TextBuilder out(heap_);
  out_ = &out;
  whole_ = &out;
  execute(body);
  return out.release();
}

Evaluator::Flow Evaluator::execute(const ast::Body& body) {
  const Nesting nesting(*this);
  for (const ast::Statement& statement : body) {
    budget().spend();
    line_ = statement.line;
    const Flow flow =
        std::visit([this](const auto& node) { return this->execute(node); }, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Evaluator::check_output() const {
  const size_t most = heap_.budget().limits().max_output_bytes;
  if (out_ == whole_ && out_->bytes().size() > most) {
    throw RenderFailure(FailureKind::kLimit,
                        fmt::format("writes more than {} MiB of text", most >> 20U));
  }
}

void Evaluator::emit(std::string_view text) {
  *out_ += text;
  check_output();
}

void Evaluator::emit(const Value& value) {
  append_str(value, *out_);
  check_output();
}

Evaluator::Flow Evaluator::execute(const ast::Data& node) {
  emit(std::string_view(node.text));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const ast::Print& node) {
  emit(evaluate(*node.value));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const ast::If& node) {
  for (const auto& [test, body] : node.branches)
    if (truthy(evaluate(*test))) return execute(body);
  return execute(node.otherwise);
}

std::vector<Value> Evaluator::select_items(const ast::For& node) {
  std::vector<Value> items = heap_.items_of(evaluate(*node.iterable));
  if (!node.condition) return items;
  std::vector<Value> selected;
  for (Value& item : items) {
    enter_scope();
    assign(node.target, item);
    if (truthy(evaluate(*node.condition))) selected.push_back(std::move(item));
    leave_scope();
  }
  return selected;
}

Evaluator::Flow Evaluator::execute(const ast::For& node) {
  const std::shared_ptr<Loop> loop = heap_.loop(select_items(node));
  for (; loop->index < loop->items.size(); ++loop->index) {
    enter_scope();
    set("loop", Value(loop));
    assign(node.target, loop->items[loop->index]);
    const Flow flow = execute(node.body);
    leave_scope();
    if (flow == Flow::kBreak) break;
  }
  if (!loop->items.empty()) return Flow::kNext;
  enter_scope();
  const Flow flow = execute(node.otherwise);
  leave_scope();
  return flow;
}

Evaluator::Flow Evaluator::execute(const ast::Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_captured(const ast::Body& body, TextBuilder& out) {
  TextBuilder* const outer = std::exchange(out_, &out);
  enter_scope();
  const Flow flow = execute(body);
  leave_scope();
  out_ = outer;
  return flow;
}

Value Evaluator::filter_block(const ast::Expression& filter, Value text) {
  block_text_ = std::move(text);
  return evaluate(filter);
}

Evaluator::Flow Evaluator::execute(const ast::SetBlock& node) {
  TextBuilder out(heap_);
  const Flow flow = execute_captured(node.body, out);
  if (flow != Flow::kNext) return flow;
  Value value = out.finish();
  assign(node.target, node.filter ? filter_block(*node.filter, std::move(value)) : value);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const ast::FilterBlock& node) {
  TextBuilder out(heap_);
  const Flow flow = execute_captured(node.body, out);
  if (flow == Flow::kNext) emit(filter_block(*node.filter, out.finish()));
  return flow;
}

Evaluator::Flow Evaluator::execute(const std::unique_ptr<const ast::Macro>& node) {
  set(node->name, make_macro(*node));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const ast::CallBlock& node) {
  const auto& call_node = std::get<ast::Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate(call_node.arguments);
  arguments.named.emplace_back("caller", make_macro(*node.caller));
  emit(call(callee, arguments));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const ast::Scoped& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.variables)
    values.push_back(evaluate(*value));
  enter_scope();
  for (size_t i = 0; i < values.size(); ++i)
    assign(node.variables[i].first, values[i]);
  const Flow flow = execute(node.body);
  leave_scope();
  return flow;
}

Evaluator::Flow Evaluator::execute(const ast::Break& /*node*/) {
  return Flow::kBreak;
}

Evaluator::Flow Evaluator::execute(const ast::Continue& /*node*/) {
  return Flow::kContinue;
}

void Evaluator::assign(const ast::Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = heap_.items_of(value);
    if (items.size() != target.parts.size()) {
      fail_render("expected {} values to unpack, got {}", target.parts.size(), items.size());
    }
    for (size_t i = 0; i < items.size(); ++i)
      assign(target.parts[i], items[i]);
  } else if (target.member.empty()) {
    set(target.name, value);
  } else {
    const Value object = evaluate(ast::Name{target.name});
    Namespace* space = object.if_namespace();
    if (space == nullptr)
      fail_render("cannot assign attribute on non-namespace object '{}'", target.name);
    if (target.member.front() == '_')
      fail_render("a namespace has no names that start with an underscore: '{}'", target.member);
    space->members.insert_or_assign(target.member, value);
  }
}

// The rest of the file evaluates macros and calls: it makes macros, and calls macros and built-ins.

Value Evaluator::make_macro(const ast::Macro& macro) {
  if (held_scopes_.empty() || held_scopes_.back() != scope_) {
    budget().allocate(sizeof(Scope) + sizeof(Value));
    held_scopes_.push_back(scope_);
  }
  Function function;
  function.name = macro.name;
  function.macro = &macro;
  function.scope = scope_;
  return heap_.function(std::move(function));
}

Value Evaluator::call(const Value& callee, Arguments& arguments) {
  const Function* function = callee.if_function();
  if (function == nullptr) {
    if (callee.is_undefined()) fail_render("{}", callee.why_undefined());
    fail_render("'{}' object is not callable", type_name(callee));
  }
  if (function->macro != nullptr) return call_macro(*function, arguments);
  return function->builtin(*this, function->self, arguments);
}

Value Evaluator::call_macro(const Function& function, Arguments& arguments) {
  const Nesting nesting(*this);
  TextBuilder out(heap_);
  const std::shared_ptr<Scope> caller_scope = std::exchange(scope_, function.scope);
  TextBuilder* const outer = std::exchange(out_, &out);
  enter_scope();
  bind_parameters(function, arguments);
  execute(function.macro->body);
  scope_ = caller_scope;
  out_ = outer;
  return out.finish();
}

void Evaluator::bind_parameters(const Function& function, Arguments& arguments) {
  const ast::Macro& macro = *function.macro;
  auto& named = arguments.named;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const ast::Parameter& parameter = macro.parameters[i];
    const auto by_name = std::find_if(named.begin(), named.end(), [&parameter](const auto& entry) {
      return entry.first == parameter.name;
    });
    if (i < arguments.positional.size()) {
      set(parameter.name, arguments.positional[i]);
    } else if (by_name != named.end()) {
      set(parameter.name, by_name->second);
      named.erase(by_name);
    } else if (parameter.fallback) {
      set(parameter.name, evaluate(*parameter.fallback));
    } else {
      set(parameter.name, Heap::undefined("parameter '{}' was not provided", parameter.name));
    }
  }
  const auto caller = std::find_if(named.begin(), named.end(),
                                   [](const auto& entry) { return entry.first == "caller"; });
  if (caller != named.end()) {
    set("caller", caller->second);
    named.erase(caller);
  }
  const size_t num_taken = std::min(arguments.positional.size(), macro.parameters.size());
  if (macro.takes_more) {
    set("varargs", heap_.tuple({arguments.positional.begin() + static_cast<ptrdiff_t>(num_taken),
                                arguments.positional.end()}));
  } else if (num_taken < arguments.positional.size()) {
    fail_render("macro '{}' takes not more than {} argument(s)", macro.name,
                macro.parameters.size());
  }
  if (macro.takes_more_named) {
    std::vector<Mapping::Entry> entries;
    for (auto& [name, value] : named)
      entries.emplace_back(heap_.text(name), value);
    set("kwargs", heap_.mapping(std::move(entries)));
  } else if (!named.empty()) {
    fail_render("macro '{}' takes no keyword argument '{}'", macro.name, named.front().first);
  }
}

Value Evaluator::apply_filter(const std::string& name, const Value& input, Arguments& arguments) {
  const Builtin filter = find_filter(name);
  if (filter == nullptr) fail_render("Encore has no filter named '{}'", name);
  return filter(*this, input, arguments);
}

bool Evaluator::apply_test(const std::string& name, const Value& input, Arguments& arguments) {
  const Builtin test = find_test(name);
  if (test == nullptr) fail_render("Encore has no test named '{}'", name);
  return truthy(test(*this, input, arguments));
}

}  // namespace encore::text::jinja
