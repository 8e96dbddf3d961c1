// Streams one text, then generates several at once.
//   stream [MODEL [PROMPT]]
#include <iostream>
#include <string>
#include <vector>

#include <encore/engine.h>

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "stories";
  const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
  try {
    encore::Engine engine({{"model", model}, {"max_batch_size", 8}});

    std::cout << prompt;
    encore::Request request = engine.submit(prompt, {{"max_tokens", 60}});
    while (auto update = request.next())
      std::cout << update->text << std::flush;
    std::cout << '\n';

    // They run together, and the prompt is computed once.
    std::vector<encore::Request> requests;
    for (int seed = 0; seed < 4; ++seed) {
      requests.push_back(engine.submit(
          prompt, {{"max_tokens", 20}, {"temperature", 0.8}, {"seed", seed}, {"stop", "."}}));
    }
    for (encore::Request& each : requests)
      std::cout << "- " << each.wait().text << '\n';

    engine.drain();
    const encore_statistics statistics = engine.statistics();
    std::cerr << statistics.generated_tokens << " tokens in " << statistics.num_steps << " steps\n";
  } catch (const encore::Error& error) {
    std::cerr << "stream: " << error.what() << '\n';
    return error.status();
  }
}
