// Implements `encore litmus`, which tests the GPU's memory model in practice: each correct form
// runs beside its broken twins.
#include "backend/litmus.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

using litmus::Form;
using litmus::Scope;

constexpr const char* kLesson = R"(What it does:
  Threads hand messages over: one writes words, then a flag; another sees the flag, then reads the
  words. Without order between the two the reader may see the flag and old words. A correct form
  orders both sides, at a scope that holds both threads; a twin breaks one rule of the model.

  Each form runs under stress, in as many groups of threads as the GPU seats at once, and counts
    stale   rounds whose reader got a word that was not the one written for it
    unseen  rounds in which thousands of loads, plain or of too narrow a scope, did not find a flag
            that a strong load of the right scope then found
  A correct form with either fails the run. A twin with either is caught; one without is as wrong
  as before, this chip just did not show it in so many rounds.

  Each correct form is also timed alone: one handoff (half of a round trip: four words and a flag
  or an arrival at an mbarrier there, a bare one back; bulk_copy and st_async bring 512 bytes), a
  batch of four claims (work_queue), one exchange of two threads' buffers (exchange), one look
  (same_address), one critical section of four contenders (lock). `order` is
  what remains after subtracting the same without any order.

Scopes: block (warps of a block, through shared and global memory), cluster (its blocks, through
  each other's shared memory and global memory), device (blocks anywhere, through global memory),
  system (the GPU and the host, through the host's memory).

Examples:
  encore litmus --list                     what there is and what it teaches; needs no GPU
  encore litmus --scope device             one scope
  encore litmus --form release_acquire --form no_acquire --rounds 1e8
  encore litmus --json > litmus.json

Exit code 7 when a correct form was violated, or there is no GPU to run on.)";

struct LitmusOptions {
  std::vector<std::string> forms;
  std::string scope;
  double rounds = 1e7;
  double seconds = 20;
  bool list = false;
  bool json = false;
};

struct LitmusResult {
  const Form* form;
  litmus::Counts counts;
  std::optional<litmus::Price> price;
  std::optional<double> order_ns;  // nanoseconds above the baseline's price
};

// Returns the forms that the options choose. Errors: kUsage when a name is unknown in the chosen
// scope.
std::vector<const Form*> choose_forms(const LitmusOptions& options) {
  const auto in_scope = [&](const Form& form) {
    return options.scope.empty() || name(form.scope) == options.scope;
  };
  std::string names;
  for (const Form& form : litmus::forms()) {
    const bool is_first = &form == litmus::find_form(form.scope, form.name) &&
                          names.find(fmt::format("{} ", form.name)) == std::string::npos;
    if (in_scope(form) && is_first) names += fmt::format("{} ", form.name);
  }
  for (const std::string& wanted : options.forms) {
    const bool exists =
        std::any_of(litmus::forms().begin(), litmus::forms().end(),
                    [&](const Form& form) { return in_scope(form) && form.name == wanted; });
    if (!exists) {
      fail(ErrorKind::kUsage, "no form '{}'{}; there are {}", wanted,
           options.scope.empty() ? "" : " in scope " + options.scope, names);
    }
  }
  std::vector<const Form*> chosen;
  for (const Form& form : litmus::forms()) {
    const bool wanted =
        options.forms.empty() ||
        std::find(options.forms.begin(), options.forms.end(), form.name) != options.forms.end();
    if (in_scope(form) && wanted) chosen.push_back(&form);
  }
  return chosen;
}

std::string_view verdict(const LitmusResult& result) {
  const bool is_clean = result.counts.violations() == 0;
  if (result.form->is_correct()) return is_clean ? "holds" : "VIOLATED";
  return is_clean ? "not caught" : "caught";
}

std::string_view between(Scope scope) {
  constexpr std::string_view kTexts[] = {"between warps of a block", "between blocks of a cluster",
                                         "between blocks anywhere on the GPU",
                                         "between the GPU and the host"};
  return kTexts[static_cast<size_t>(scope)];
}

json::object form_json(const Form& form) {
  const auto text_or_null = [](std::string_view text) {
    return text.empty() ? json::value(nullptr) : json::value(text);
  };
  return {{"scope", name(form.scope)},
          {"form", form.name},
          {"twin_of", text_or_null(form.twin_of)},
          {"ptx", form.ptx},
          {"teaches", form.teaches},
          {"section", form.section},
          {"baseline", text_or_null(form.baseline)}};
}

void list(const std::vector<const Form*>& forms, bool as_json) {
  json::array rows;
  std::string text;
  for (const Form* form : forms) {
    rows.push_back(form_json(*form));
    const std::string_view indent = form->is_correct() ? "" : "  ";
    if (text.empty() || form->is_correct()) text += '\n';
    text +=
        fmt::format("{}{}.{}{}\n{}    {}\n{}    {} [{}]\n", indent, name(form->scope), form->name,
                    form->is_correct() ? "" : fmt::format(", a broken {}", form->twin_of), indent,
                    form->ptx, indent, form->teaches, form->section);
  }
  if (as_json) return print(json::to_text(rows) + "\n");
  print(text.substr(1) + "\nIn brackets: the section of PTX ISA's Memory Consistency Model.\n");
}

// Caches the prices of correct forms and of their baselines, so that each is measured once.
class Prices {
 public:
  explicit Prices(litmus::Suite& suite) : suite_(suite) {}

  const litmus::Price& of(const Form& form) {
    const auto found = prices_.find(&form);
    return found != prices_.end() ? found->second
                                  : prices_.emplace(&form, suite_.price(form)).first->second;
  }

 private:
  litmus::Suite& suite_;
  std::map<const Form*, litmus::Price> prices_;
};

LitmusResult measure(litmus::Suite& suite, Prices& prices, const Form& form,
                     const LitmusOptions& options) {
  LitmusResult result{&form,
                      suite.stress(form, static_cast<int64_t>(options.rounds), options.seconds),
                      std::nullopt, std::nullopt};
  if (!form.is_correct()) return result;
  result.price = prices.of(form);
  result.order_ns = result.price->ns - prices.of(*litmus::find_form(form.scope, form.baseline)).ns;
  return result;
}

void print_scope(const std::vector<LitmusResult>& results, Scope scope) {
  Table table(
      {"form", "twin of", "verdict", "rounds", "stale", "unseen", "ns", "cycles", "order ns"});
  for (const LitmusResult& result : results) {
    if (result.form->scope != scope) continue;
    const auto number = [](bool is_there, double value) {
      return is_there ? fmt::format("{:.0f}", value) : std::string("-");
    };
    table.add({std::string(result.form->name), std::string(result.form->twin_of),
               std::string(verdict(result)), std::to_string(result.counts.rounds),
               std::to_string(result.counts.stale), std::to_string(result.counts.unseen),
               number(result.price.has_value(), result.price ? result.price->ns : 0),
               number(result.price.has_value(), result.price ? result.price->cycles : 0),
               number(result.order_ns.has_value(), result.order_ns.value_or(0))});
  }
  if (!table.empty()) {
    print(fmt::format("\n{} scope, {}\n{}", name(scope), between(scope), table.text()));
  }
}

struct Summary {
  int correct = 0;
  int violated = 0;
  int twins = 0;
  int caught = 0;
};

Summary summarize(const std::vector<LitmusResult>& results) {
  Summary summary;
  for (const LitmusResult& result : results) {
    const bool is_clean = result.counts.violations() == 0;
    ++(result.form->is_correct() ? summary.correct : summary.twins);
    if (!is_clean) ++(result.form->is_correct() ? summary.violated : summary.caught);
  }
  return summary;
}

json::object result_json(const LitmusResult& result) {
  json::object row = form_json(*result.form);
  row["verdict"] = verdict(result);
  row["rounds"] = result.counts.rounds;
  row["stale"] = result.counts.stale;
  row["unseen"] = result.counts.unseen;
  row["ns"] = result.price ? json::value(result.price->ns) : json::value(nullptr);
  row["cycles"] = result.price ? json::value(result.price->cycles) : json::value(nullptr);
  row["order_ns"] = result.order_ns ? json::value(*result.order_ns) : json::value(nullptr);
  return row;
}

void print_json(const litmus::Suite& suite, const std::vector<LitmusResult>& results,
                const Summary& summary) {
  json::array rows;
  for (const LitmusResult& result : results)
    rows.push_back(result_json(result));
  print(json::to_text(json::object{{"chip", suite.chip()},
                                   {"forms", std::move(rows)},
                                   {"correct", summary.correct},
                                   {"violated", summary.violated},
                                   {"twins", summary.twins},
                                   {"caught", summary.caught}}) +
        "\n");
}

void run(const LitmusOptions& options) {
  const std::vector<const Form*> forms = choose_forms(options);
  if (options.list) return list(forms, options.json);

  const std::unique_ptr<litmus::Suite> suite = litmus::open_suite();
  const InterruptScope interrupt;
  Prices prices(*suite);
  std::vector<LitmusResult> results;
  if (!options.json) {
    print(fmt::format("{}: at least {:.0f} rounds a form, or {:.0f} s\n", suite->chip(),
                      options.rounds, options.seconds));
  }
  for (size_t i = 0; i < forms.size() && !interrupt.interrupted(); ++i) {
    results.push_back(measure(*suite, prices, *forms[i], options));
    const bool ends_scope = i + 1 == forms.size() || forms[i + 1]->scope != forms[i]->scope;
    if (ends_scope && !options.json) print_scope(results, forms[i]->scope);
  }

  const Summary summary = summarize(results);
  if (options.json) {
    print_json(*suite, results, summary);
  } else {
    print(fmt::format("\n{} of {} correct forms held; {} of {} twins were caught\n",
                      summary.correct - summary.violated, summary.correct, summary.caught,
                      summary.twins));
  }
  if (summary.violated > 0) {
    fail(ErrorKind::kDevice,
         "{} correct forms were violated: this GPU, its driver or these tests "
         "break the memory model",
         summary.violated);
  }
  if (interrupt.interrupted()) throw Interrupted();
}

}  // namespace

void add_litmus(Command& app) {
  Command* verb = app.add_subcommand(
      "litmus", "The GPU's memory model in practice: correct handoffs beside their broken twins");
  auto options =
      std::make_shared<LitmusOptions>();  // shared by the parser's options and the callback
  verb->add_option("--form", options->forms, "Only this form or twin; may be repeated")
      ->type_name("NAME");
  verb->add_option("--scope", options->scope, "Only this scope: block, cluster, device, system")
      ->one_of({"block", "cluster", "device", "system"})
      ->type_name("SCOPE");
  verb->add_option("--rounds", options->rounds, "Rounds of each form at least, 1 to 1e12")
      ->range(1.0, 1e12)
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds,
                   "No further rounds of a form after so long, 0 to 86400")
      ->range(0.0, 86400.0)
      ->capture_default_str();
  verb->add_flag("--list", options->list, "Only list forms and what each teaches");
  add_json_flag(*verb, options->json);
  verb->footer(kLesson);
  verb->callback([options] { run(*options); });
}

}  // namespace encore::cli
