#include "backend/litmus.h"

#include <algorithm>
#include <vector>

namespace encore::litmus {
namespace {

constexpr std::string_view kOperations = "Operation types";
constexpr std::string_view kScopeSection = "Scope";
constexpr std::string_view kProxies = "Proxies";
constexpr std::string_view kMorallyStrong = "Morally strong operations";
constexpr std::string_view kRaces = "Conflict and Data-races";
constexpr std::string_view kPatterns = "Release and Acquire Patterns";
constexpr std::string_view kCausality = "Causality order";
constexpr std::string_view kCoherence = "Coherence";

// A form, for all scopes that have it. In `ptx`, S stands for the name of the scope, and N for the
// name of a narrower scope that the hardware distinguishes from it.
struct Pattern {
  std::string_view name;
  std::string_view ptx;
  std::string_view teaches;
  std::string_view section;
  std::string_view twin_of;
  std::string_view baseline;
  Scope first = Scope::kBlock;
  Scope last = Scope::kSystem;
};

constexpr Pattern kPatternTable[] = {
    {"release_acquire", "st.release.S / ld.acquire.S",
     "A release store and an acquire load of one flag hand over everything written before it.",
     kPatterns, "", "relaxed_flag"},
    {"no_acquire", "st.release.S / ld.relaxed.S",
     "A relaxed load of the flag does not acquire: later loads may return what L1 still holds.",
     kPatterns, "release_acquire", ""},
    {"no_release", "st.relaxed.S / ld.acquire.S",
     "A relaxed store of the flag does not release: it may overtake the words written before.",
     kPatterns, "release_acquire", ""},
    {"narrow_scope", "st.release.N / ld.acquire.N",
     "A scope that does not hold both threads orders nothing between them.", kScopeSection,
     "release_acquire", "", Scope::kCluster, Scope::kSystem},
    {"plain_flag", "st / ld",
     "A plain flag is a data race: its loads may be kept in L1, moved or left out.", kRaces,
     "release_acquire", ""},
    {"fences", "fence.acq_rel.S; st.relaxed.S / ld.relaxed.S; fence.acq_rel.S",
     "A fence before a strong store and one after a strong load make the same handoff.", kPatterns,
     "", "relaxed_flag"},
    {"relaxed_flag", "st.relaxed.S / ld.relaxed.S",
     "Strong is not ordered: relaxed accesses of a flag say nothing of other words.", kPatterns,
     "fences", ""},
    {"relaxed_spin", "fence.release.S; st.relaxed.S / spin ld.relaxed.S, then fence.acquire.S",
     "Spin on relaxed loads and acquire once, when the value is there; one-way fences suffice.",
     kPatterns, "", "relaxed_flag"},
    {"writer_fence_only", "fence.release.S; st.relaxed.S / ld.relaxed.S",
     "Without the reader's fence the writer's orders nothing for the reader.", kPatterns,
     "relaxed_spin", ""},
    {"reader_fence_only", "st.relaxed.S / ld.relaxed.S; fence.acquire.S",
     "Without the writer's fence the reader's has nothing to pair with.", kPatterns, "relaxed_spin",
     ""},
    {"threadfence", "__threadfence(); st.volatile / ld.volatile; __threadfence()",
     "The classic idiom works: volatile is a relaxed access of system scope, CUDA's fences are "
     "sequentially consistent.",
     kOperations, "", "relaxed_flag"},
    {"volatile_flag", "st.volatile / ld.volatile",
     "volatile makes a flag strong and orders no other word.", kOperations, "threadfence", ""},
    {"several_flags", "fence.acq_rel.S; 4 x st.relaxed.S / ld.relaxed.S; fence.acq_rel.S",
     "One fence publishes through every flag stored after it.", kPatterns, "", "relaxed_flags"},
    {"late_fence", "2 x st.relaxed.S; fence.acq_rel.S; 2 x st.relaxed.S / as above",
     "A flag stored before the fence publishes nothing.", kPatterns, "several_flags", ""},
    {"one_way_flags", "fence.release.S; 4 x st.relaxed.S / ld.relaxed.S; fence.acquire.S",
     "One one-way fence publishes through every flag stored after it, and costs the writer no L1.",
     kPatterns, "", "relaxed_flags"},
    {"late_release", "2 x st.relaxed.S; fence.release.S; 2 x st.relaxed.S / as above",
     "A flag stored before the release fence publishes nothing.", kPatterns, "one_way_flags", ""},
    {"relaxed_flags", "4 x st.relaxed.S / ld.relaxed.S", "Flags without a fence publish nothing.",
     kPatterns, "several_flags", ""},
    {"work_queue", "atom.acq_rel.S.add",
     "One atomic does both: it publishes the own slot and acquires those claimed before.",
     kPatterns, "", "relaxed_queue", Scope::kBlock, Scope::kDevice},
    {"release_only_queue", "atom.release.S.add",
     "A claim that only releases does not see the others' slots.", kPatterns, "work_queue", "",
     Scope::kBlock, Scope::kDevice},
    {"acquire_only_queue", "atom.acquire.S.add",
     "A claim that only acquires does not publish the own slot.", kPatterns, "work_queue", "",
     Scope::kBlock, Scope::kDevice},
    {"relaxed_queue", "atom.relaxed.S.add",
     "That an index is atomic says nothing of the slots it counts.", kMorallyStrong, "work_queue",
     "", Scope::kBlock, Scope::kDevice},
    {"exchange", "atom.acq_rel.S.exch",
     "One exchange gives away what its thread wrote and acquires what it takes.", kPatterns, "",
     "relaxed_exchange", Scope::kBlock, Scope::kDevice},
    {"release_only_exchange", "atom.release.S.exch",
     "An exchange that only releases may read old words in the buffer it takes.", kPatterns,
     "exchange", "", Scope::kBlock, Scope::kDevice},
    {"relaxed_exchange", "atom.relaxed.S.exch",
     "That a pointer is swapped by an atomic says nothing of what it points to.", kMorallyStrong,
     "exchange", "", Scope::kBlock, Scope::kDevice},
    {"same_address", "st.relaxed.S; ld.relaxed.S / ld.relaxed.S; ld.relaxed.S, of one address",
     "Accesses of one thread to one address keep their order, without any fence: it reads its own "
     "store or a later one, and never an earlier value after a later one.",
     kCoherence, "", "two_addresses", Scope::kBlock, Scope::kDevice},
    {"two_addresses", "st.relaxed.S a; st.relaxed.S b / ld.relaxed.S b; ld.relaxed.S a",
     "Those to two addresses do not: the second store may be seen before the first.", kCausality,
     "same_address", "", Scope::kBlock, Scope::kDevice},
    {"lock", "atom.acquire.S.cas ... st.release.S",
     "Taking a lock is an acquire and leaving it a release; acq_rel is not needed.", kCausality, "",
     "relaxed_lock", Scope::kBlock, Scope::kDevice},
    {"no_acquire_lock", "atom.relaxed.S.cas ... st.release.S",
     "A lock taken without acquire admits one thread at a time, which may read old words.",
     kCausality, "lock", "", Scope::kBlock, Scope::kDevice},
    {"plain_unlock", "atom.acquire.S.cas ... st",
     "A plain store that leaves the lock may overtake what was written inside.", kRaces, "lock", "",
     Scope::kBlock, Scope::kDevice},
    {"relaxed_lock", "atom.relaxed.S.cas ... st.relaxed.S",
     "Mutual exclusion alone hands nothing over.", kCausality, "lock", "", Scope::kBlock,
     Scope::kDevice},
    {"relay",
     "fence.release.S; st.relaxed.S / ld.relaxed.S; fence.acq_rel.S; st.relaxed.S / ld.relaxed.S; "
     "fence.acquire.S",
     "One fence between two flags takes and gives: it acquires what the first flag published, and "
     "publishes it and the own words through the second.",
     kPatterns, "", "relaxed_relay", Scope::kDevice, Scope::kDevice},
    {"relay_release_only", "as above, with fence.release.S between the flags",
     "A relay that only releases may read old words behind the first flag.", kPatterns, "relay", "",
     Scope::kDevice, Scope::kDevice},
    {"relay_acquire_only", "as above, with fence.acquire.S between the flags",
     "A relay that only acquires does not publish its own words through the second flag.",
     kPatterns, "relay", "", Scope::kDevice, Scope::kDevice},
    {"relaxed_relay", "as above, without a fence between the flags",
     "Flags on both sides of a relay hand nothing through it.", kCausality, "relay", "",
     Scope::kDevice, Scope::kDevice},
    {"places",
     "st.relaxed.S word / spin ld.relaxed.S word; st.relaxed.S 0; fence.acq_rel.S, both ways by "
     "turns",
     "A word that is its own flag needs no other; whoever takes it empties its place, and orders "
     "that before the next "
     "word that goes back.",
     kCoherence, "", "relaxed_places", Scope::kDevice, Scope::kDevice},
    {"late_empty", "as above, with the place emptied behind the next word that goes back",
     "A place that is emptied too late loses the word that was stored there meanwhile.", kCoherence,
     "places", "", Scope::kDevice, Scope::kDevice},
    {"relaxed_places", "as above, without the fence",
     "Emptying a place and storing to another one are not in order: the former may arrive last.",
     kCausality, "places", "", Scope::kDevice, Scope::kDevice},
    {"mbarrier", "mbarrier.arrive.release.S / spin mbarrier.try_wait.acquire.S",
     "An arrival that releases ends a phase; a wait that acquires its end sees what was written.",
     kPatterns, "", "relaxed_mbarrier", Scope::kBlock, Scope::kCluster},
    {"relaxed_mbarrier", "mbarrier.arrive.relaxed.S / spin mbarrier.try_wait.relaxed.S",
     "That a phase has ended says nothing of other words.", kPatterns, "mbarrier", "",
     Scope::kBlock, Scope::kCluster},
    {"early_arrive", "mbarrier.arrive.release.S; st / spin mbarrier.try_wait.acquire.S",
     "An arrival publishes what was written before it, not what its thread writes next.",
     kCausality, "mbarrier", "", Scope::kBlock, Scope::kCluster},
    {"one_try", "mbarrier.arrive.release.S / mbarrier.try_wait.acquire.S, the answer unheeded",
     "try_wait may come back before the phase has ended: ask again until it says yes.", kCausality,
     "mbarrier", "", Scope::kBlock, Scope::kCluster},
    {"relaxed_arrive", "mbarrier.arrive.relaxed.S / spin mbarrier.try_wait.acquire.S",
     "An arrival that does not release may overtake the words written before.", kPatterns,
     "mbarrier", "", Scope::kCluster, Scope::kCluster},
    {"relaxed_wait", "mbarrier.arrive.release.S / spin mbarrier.try_wait.relaxed.S",
     "A wait that does not acquire: later loads may return what L1 still holds.", kPatterns,
     "mbarrier", "", Scope::kCluster, Scope::kCluster},
    {"narrow_arrive", "mbarrier.arrive.release.N / spin mbarrier.try_wait.acquire.S",
     "An arrival at another block's barrier is of block scope unless it says otherwise.",
     kScopeSection, "mbarrier", "", Scope::kCluster, Scope::kCluster},
    {"narrow_wait", "mbarrier.arrive.release.S / spin mbarrier.try_wait.acquire.N",
     "A wait is of block scope unless it says otherwise, whoever arrived.", kScopeSection,
     "mbarrier", "", Scope::kCluster, Scope::kCluster},
    {"bulk_copy",
     "st; fence.proxy.async; cp.async.bulk / spin mbarrier.try_wait.acquire.S; ld, use; "
     "mbarrier.arrive.release.S",
     "The copy engine reads what was stored before a proxy fence, and may fill a slot again once "
     "what was loaded from it has been used.",
     kProxies, "", "no_proxy_fence", Scope::kBlock, Scope::kBlock},
    {"no_proxy_fence",
     "st; cp.async.bulk / spin mbarrier.try_wait.acquire.S; ld, use; mbarrier.arrive.release.S",
     "The copy engine reads through another proxy: it may not see its own thread's stores.",
     kProxies, "bulk_copy", "", Scope::kBlock, Scope::kBlock},
    {"early_return",
     "st; fence.proxy.async; cp.async.bulk / spin mbarrier.try_wait.acquire.S; "
     "mbarrier.arrive.release.S; ld",
     "A slot that is given back before it is read may be filled again before it is read.",
     kCausality, "bulk_copy", "", Scope::kBlock, Scope::kBlock},
    {"st_async", "st.async / spin mbarrier.try_wait.acquire.S; ld, use; mbarrier.arrive.release.S",
     "The end of a phase that counts bytes publishes the bytes; the stores need no fence.",
     kPatterns, "", "relaxed_receipt", Scope::kCluster, Scope::kCluster},
    {"relaxed_receipt",
     "st.async / spin mbarrier.try_wait.relaxed.S; ld, use; mbarrier.arrive.release.S",
     "That the bytes have been counted is not yet that their reader sees them.", kPatterns,
     "st_async", "", Scope::kCluster, Scope::kCluster},
    {"early_return", "st.async / spin mbarrier.try_wait.acquire.S; mbarrier.arrive.release.S; ld",
     "A slot that is given back before it is read may be filled again before it is read.",
     kCausality, "st_async", "", Scope::kCluster, Scope::kCluster},
};

std::string_view ptx_name(Scope scope) {
  constexpr std::string_view kNames[] = {"cta", "cluster", "gpu", "sys"};
  return kNames[static_cast<size_t>(scope)];
}

// Returns a narrower scope that compiles to other instructions. For cluster and gpu scope this is
// block scope, because these two compile to the same instructions on sm_90.
Scope narrower(Scope scope) {
  return scope == Scope::kSystem ? Scope::kDevice : Scope::kBlock;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const Scope scope : kScopes) {
    for (const Pattern& pattern : kPatternTable) {
      if (scope < pattern.first || scope > pattern.last) continue;
      const std::string ptx = replace_all(
          replace_all(std::string(pattern.ptx), ".S", "." + std::string(ptx_name(scope))), ".N",
          "." + std::string(ptx_name(narrower(scope))));
      forms.push_back({scope, pattern.name, ptx, pattern.teaches, pattern.section, pattern.twin_of,
                       pattern.baseline});
    }
  }
  return forms;
}

}  // namespace

std::string_view name(Scope scope) {
  constexpr std::string_view kNames[] = {"block", "cluster", "device", "system"};
  return kNames[static_cast<size_t>(scope)];
}

std::span<const Form> forms() {
  static const std::vector<Form> kForms = all_forms();
  return kForms;
}

const Form* find_form(Scope scope, std::string_view name) {
  const auto found = std::find_if(forms().begin(), forms().end(), [&](const Form& form) {
    return form.scope == scope && form.name == name;
  });
  return found == forms().end() ? nullptr : &*found;
}

}  // namespace encore::litmus
