#include "text/jinja/template.h"

#include <new>
#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace encore::text::jinja {

struct Template::Impl {
  ast::Body body;
};

Template::Template(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, const std::string& where) {
  return Template(std::make_unique<const Impl>(Impl{jinja::parse(to_valid_utf8(source), where)}));
}

std::variant<std::string, Failure> Template::render(
    const json::object& variables, const Limits& limits,
    std::chrono::system_clock::time_point now) const {
  Heap heap(limits);
  Evaluator evaluator(heap, now);
  try {
    return evaluator.run(impl_->body, variables);
  } catch (const RenderFailure& failure) {
    return Failure{failure.kind(), evaluator.line(), failure.what()};
  } catch (const std::bad_alloc&) {
    return Failure{FailureKind::kLimit, evaluator.line(), "takes more memory than there is"};
  }
}

}  // namespace encore::text::jinja
