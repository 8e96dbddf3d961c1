#include "server/api_server.h"

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using ApiServerTest = testing::ApiTest;

TEST_F(ApiServerTest, ListsTheModelUnderAllItsNames) {
  const json::value list = parsed(*send("GET", "/v1/models"));
  EXPECT_EQ(list.at("data").at(1).at("id"), "tales");
  EXPECT_EQ(parsed(*send("GET", "/v1/models/stories")).at("max_model_len"), 100);
  EXPECT_EQ(parsed(*send("GET", "/v1/models/%73tories")).at("id"), "stories");
  EXPECT_EQ(send("GET", "/v1/models/other")->status, 404);
}

TEST_F(ApiServerTest, ListsAdaptersWithTheModelAsTheirParent) {
  ServedModel model;
  model.names = {"stories"};
  model.adapters->put({"poet", "/adapters/poet"});
  start(std::move(model), {});
  const json::value list = parsed(*send("GET", "/v1/models")).at("data");
  ASSERT_EQ(list.as_array().size(), 2U);
  EXPECT_TRUE(list.at(0).at("parent").is_null());
  EXPECT_EQ(list.at(1).at("id"), "poet");
  EXPECT_EQ(list.at(1).at("parent"), "stories");
  EXPECT_EQ(list.at(1).at("root"), "/adapters/poet");
  EXPECT_EQ(parsed(*send("GET", "/v1/models/poet")).at("parent"), "stories");
}

TEST_F(ApiServerTest, LoadsAndUnloadsAdaptersForOperators) {
  start({.gate = {.api_keys = {"one"}, .admin_keys = {"two"}}});
  const auto ask = [&](const std::string& path, const std::string& body) {
    auto exchange = send("POST", path, body, {{"authorization", "Bearer two"}});
    wait_and_pump();
    return exchange;
  };
  const std::string load = R"({"lora_name": "poet", "lora_path": "/poet"})";
  EXPECT_EQ(send("POST", "/v1/load_lora_adapter", load, {{"authorization", "Bearer one"}})->status,
            401);
  EXPECT_TRUE(generator_.adapters.empty());
  EXPECT_EQ(parsed(*ask("/v1/load_lora_adapter", load)).at("parent"), "stories");
  EXPECT_EQ(generator_.adapters, std::vector<std::string>{"poet=/poet"});
  const Headers key = {{"authorization", "Bearer one"}};
  EXPECT_EQ(send("GET", "/v1/models/poet", "", key)->status, 200);
  EXPECT_EQ(send("POST", "/v1/completions", R"({"prompt": "x", "model": "poet"})", key)->status, 0);
  EXPECT_EQ(generator_.requests.back().adapter, "poet");

  EXPECT_EQ(ask("/load_lora_adapter", R"({"lora_name": "tales", "lora_path": "/x"})")->status, 400);
  EXPECT_EQ(ask("/load_lora_adapter", R"({"lora_name": "odd"})")->status, 400);
  generator_.adapter_refusal = engine::Refusal{engine::RefusalKind::kInvalid, "its rank is 64"};
  const auto refused = ask("/load_lora_adapter", R"({"lora_name": "odd", "lora_path": "/odd"})");
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->body.find("its rank is 64"), std::string::npos);
  EXPECT_EQ(send("GET", "/v1/models/odd", "", key)->status, 404);

  generator_.adapter_refusal = std::nullopt;
  EXPECT_EQ(ask("/v1/unload_lora_adapter", R"({"lora_name": "odd"})")->status, 404);
  EXPECT_EQ(parsed(*ask("/v1/unload_lora_adapter", R"({"lora_name": "poet"})")).at("deleted"),
            true);
  EXPECT_EQ(generator_.adapters.back(), "poet");
  EXPECT_EQ(send("GET", "/v1/models/poet", "", key)->status, 404);
}

TEST_F(ApiServerTest, AKeyUsesAndLoadsTheAdaptersThatItMay) {
  KeySet keys = {"all"};
  keys.add("some", "", {.adapters = {{"poet", "law-*"}}});
  keys.add("loader", "", {.adapters = {{"law-*"}}, .loads_adapters = true});
  ServedModel model;
  model.names = {"stories"};
  model.vocab_size = 100;
  model.max_seq_len = 100;
  for (const char* name : {"poet", "law-1", "chef"})
    model.adapters->put({name, std::string("/") + name});
  start(std::move(model), {.gate = {.api_keys = keys}});
  const auto as = [&](const char* key, std::string method, std::string path, std::string body) {
    return send(std::move(method), std::move(path), std::move(body), {{"x-api-key", key}});
  };
  const auto models_of = [&](const char* key) {
    return parsed(*as(key, "GET", "/v1/models", "")).at("data").as_array().size();
  };
  EXPECT_EQ(models_of("all"), 4U);
  EXPECT_EQ(models_of("some"), 3U);
  EXPECT_EQ(as("some", "GET", "/v1/models/chef", "")->status, 404);
  EXPECT_EQ(as("some", "GET", "/v1/models/law-1", "")->status, 200);
  const auto status_for = [&](const char* key, const std::string& name) {
    return as(key, "POST", "/v1/completions",
              fmt::format(R"({{"prompt": [1], "model": "{}"}})", name))
        ->status;
  };
  EXPECT_EQ(status_for("some", "poet"), 0);  // 0: no answer yet, because it generates
  EXPECT_EQ(status_for("some", "stories"), 0);
  EXPECT_EQ(status_for("all", "chef"), 0);
  const size_t num_before = generator_.requests.size();
  EXPECT_EQ(status_for("some", "chef"), 403);
  EXPECT_EQ(status_for("some", "stories:chef"), 403);
  EXPECT_EQ(generator_.requests.size(), num_before);
  const auto load = [&](const char* key, const std::string& name) {
    auto exchange = as(key, "POST", "/v1/load_lora_adapter",
                       fmt::format(R"({{"lora_name": "{}", "lora_path": "/x"}})", name));
    if (exchange->status == 0) wait_and_pump();
    return exchange->status;
  };
  EXPECT_EQ(load("all", "new"), 403);
  EXPECT_EQ(load("loader", "new"), 403);
  EXPECT_TRUE(generator_.adapters.empty());
  EXPECT_EQ(load("loader", "law-2"), 200);
  EXPECT_EQ(generator_.adapters, std::vector<std::string>{"law-2=/x"});
}

TEST_F(ApiServerTest, LoadsAdaptersOfOneDirectoryAlone) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const fs::path root = dir.path() / "adapters";
  fs::create_directories(root / "poet");
  fs::create_directories(dir.path() / "adapters-of-others");
  fs::create_directory_symlink(dir.path(), root / "out");
  fs::create_directory_symlink(root / "loop", root / "loop");
  start({.gate = {.admin_keys = {"two"}}, .adapter_root = root.string()});
  const auto load = [&](const std::string& path) {
    auto exchange = send("POST", "/v1/load_lora_adapter",
                         fmt::format(R"({{"lora_name": "x", "lora_path": "{}"}})", path),
                         {{"x-api-key", "two"}});
    wait_and_pump();
    return exchange->status;
  };
  for (const std::string& path :
       {std::string("../adapters-of-others"), dir.path().string(), std::string("/etc"),
        std::string("poet/../../adapters-of-others"), std::string("out"),
        std::string("out/adapters-of-others"), std::string("loop"), std::string("loop/x"),
        root.string(), std::string("."), root.string() + "-of-others"})
    EXPECT_EQ(load(path), 403) << path;
  EXPECT_TRUE(generator_.adapters.empty());
  EXPECT_EQ(load("poet"), 200);
  EXPECT_EQ(load("out/adapters/./poet"), 200);
  EXPECT_EQ(generator_.adapters.front(), "x=" + (fs::canonical(root) / "poet").string());
}

TEST_F(ApiServerTest, TellsRoutersOfItselfAsTheyAsk) {
  for (const char* path : {"/model_info", "/get_model_info", "/server_info", "/get_server_info"}) {
    const json::value info = parsed(*send("GET", path));
    EXPECT_EQ(info.at("served_model_name"), "stories") << path;
    EXPECT_EQ(info.at("model_path"), "stories") << path;
    EXPECT_EQ(info.at("is_generation"), true) << path;
  }
  const json::value info = parsed(*send("GET", "/server_info"));
  EXPECT_EQ(info.at("context_length"), 100);
  EXPECT_TRUE(info.at("internal_states").at(0).is_object());
}

TEST_F(ApiServerTest, HasAPageThatLoadsNothingFromElsewhere) {
  start({.gate = {.api_keys = {"one"}}});
  for (const char* path : {"/", "/page.js", "/text.js", "/charts.js", "/page.css"}) {
    const auto file = send("GET", path);
    ASSERT_EQ(file->status, 200) << path;
    EXPECT_NE(file->header("Content-Security-Policy").find("default-src 'none'"),
              std::string::npos);
    EXPECT_EQ(file->body.find("://"), std::string::npos) << path;
    EXPECT_GT(file->body.size(), 1000U) << path;
  }
  for (const char* path : {"/libraries.js", "/notices.txt"})
    EXPECT_EQ(send("GET", path)->status, 200) << path;
  EXPECT_NE(send("GET", "/")->body.find("<textarea id=\"prompt\""), std::string::npos);
  EXPECT_EQ(send("GET", "/page.html")->status, 404);
}

TEST_F(ApiServerTest, TellsAWrongMethodFromAWrongPath) {
  EXPECT_EQ(send("GET", "/nowhere")->status, 404);
  const auto wrong = send("GET", "/v1/completions");
  EXPECT_EQ(wrong->status, 405);
  EXPECT_EQ(wrong->header("Allow"), "POST");
  EXPECT_EQ(send("HEAD", "/live")->status, 200);
}

TEST_F(ApiServerTest, AsksForAKeyWhereThereAreSome) {
  start({.gate = {.api_keys = {"one", "two"}}});
  EXPECT_EQ(send("GET", "/v1/models")->status, 401);
  EXPECT_EQ(send("GET", "/v1/models", "", {{"authorization", "Bearer three"}})->status, 401);
  EXPECT_EQ(send("GET", "/v1/models", "", {{"authorization", "Bearer on"}})->status, 401);
  EXPECT_EQ(send("GET", "/v1/models", "", {{"authorization", "Basic one"}})->status, 401);
  EXPECT_EQ(send("GET", "/v1/models", "", {{"authorization", "bearer two"}})->status, 200);
}

// A browser cannot send a key when it opens a page, so the page itself is open, and then asks the
// user for a key.
TEST_F(ApiServerTest, AsksForAKeyEverywhereButAtProbesAndThePage) {
  start({.gate = {.api_keys = {"one"}}});
  for (const char* path : {"/live", "/health", "/", "/page.js", "/libraries.js", "/page.css"})
    EXPECT_EQ(send("GET", path)->status, 200) << path;
  for (const char* path : {"/metrics", "/version", "/model_info", "/server_info", "/openapi.json",
                           "/v1/models", "/v1/models/tales", "/health_generate"})
    EXPECT_EQ(send("GET", path)->status, 401) << path;
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses",
                           "/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize"})
    EXPECT_EQ(send("POST", path, "{}")->status, 401) << path;
}

TEST_F(ApiServerTest, OnLoopbackAnswersToNamesOfThisMachineAlone) {
  for (const char* host :
       {"localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "host.docker.internal:8000",
        "host.containers.internal", "app.localhost:8000", "laptop.LOCAL"})
    EXPECT_EQ(send("GET", "/live", "", {{"host", host}})->status, 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example",
                           "evil-localhost", "evilinternal", ".internal", "local"})
    EXPECT_EQ(send("GET", "/live", "", {{"host", host}})->status, 403) << host;
  start({.gate = {.is_loopback = false}});
  EXPECT_EQ(send("GET", "/live", "", {{"host", "server.example"}})->status, 200);
}

TEST_F(ApiServerTest, AnswersToTheHostsThatAreAllowedAndNoOthers) {
  for (const bool is_loopback : {true, false}) {
    start({.gate = {.allowed_hosts = {"llm.example", "other.example:80"},
                    .is_loopback = is_loopback}});
    for (const char* host : {"LLM.example:8000", "llm.example", "other.example:80", "localhost"})
      EXPECT_EQ(send("GET", "/live", "", {{"host", host}})->status, 200) << host;
    for (const char* host : {"a.llm.example", "evil.example", "other.example:81"})
      EXPECT_EQ(send("GET", "/live", "", {{"host", host}})->status, 403) << host;
  }
  start({.gate = {.allowed_hosts = {"*"}}});
  EXPECT_EQ(send("GET", "/live", "", {{"host", "server.example"}})->status, 200);
}

TEST_F(ApiServerTest, LetsPagesOfAllowedOriginsCallAndNoOthers) {
  start({.gate = {.allowed_origins = {"https://chat.example"}}});
  const Headers allowed = {{"origin", "https://chat.example"}, {"host", "localhost"}};
  EXPECT_EQ(send("GET", "/live", "", allowed)->header("Access-Control-Allow-Origin"),
            "https://chat.example");
  Headers asking = allowed;
  asking.emplace_back("access-control-request-headers", "authorization,x-stainless-os");
  for (const char* path :
       {"/v1/completions", "/v1/messages", "/v1/models", "/tokenize", "/health"}) {
    const auto preflight = send("OPTIONS", path, "", asking);
    EXPECT_EQ(preflight->status, 204);
    EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "https://chat.example");
    EXPECT_EQ(preflight->header("Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  }
  const Headers other = {{"origin", "https://chat.example.evil"}, {"host", "localhost"}};
  const auto refused = send("GET", "/live", "", other);
  EXPECT_EQ(refused->status, 403);
  EXPECT_EQ(refused->header("Access-Control-Allow-Origin"), "");
  const Headers own = {{"origin", "http://localhost:8000"}, {"host", "localhost:8000"}};
  EXPECT_EQ(send("GET", "/live", "", own)->status, 200);
}

TEST_F(ApiServerTest, WritesErrorsOfRoutesThatAreNotThereAsTheirClientsExpect) {
  const Headers version = {{"anthropic-version", "2023-06-01"}};
  for (const auto& [path, headers] : {std::pair<const char*, Headers>{"/v1/messages/batches", {}},
                                      {"/v1/files", version},
                                      {"/v1/models/none", version}}) {
    const auto missing = send("GET", path, "", headers);
    EXPECT_EQ(missing->status, 404);
    const json::value body = parsed(*missing);
    EXPECT_EQ(body.at("type"), "error") << path;
    EXPECT_EQ(error(body).at("type"), "not_found_error") << path;
  }
  EXPECT_EQ(error(parsed(*send("GET", "/v1/files"))).at("code"), "not_found");
}

TEST_F(ApiServerTest, TellsAWrongKeyFromNone) {
  start({.gate = {.api_keys = {"one"}}});
  const auto message = [&](const Headers& headers) {
    return std::string(
        error(parsed(*send("GET", "/v1/models", "", headers))).at("message").as_string());
  };
  EXPECT_EQ(message({{"authorization", "Bearer two"}}),
            "the key that was sent is not an API key of this server");
  EXPECT_TRUE(message({}).starts_with("an API key is needed: ")) << message({});
}

TEST_F(ApiServerTest, UnpacksBodiesBesideTheServersThread) {
  start({.max_body_bytes = 20});
  const Headers gzip = {{"content-encoding", "gzip"}};
  const auto bad = send("POST", "/v1/completions", "{}", gzip);
  EXPECT_FALSE(bad->has_ended);
  wait_and_pump();
  EXPECT_EQ(bad->status, 400);
  // The gzip data of {"prompt": "aaaa..."}, which is longer than max_body_bytes.
  const std::string bomb(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x28\xca\xcf\x2d\x28\x51\xb2\x52\x50\x4a"
      "\x24\x19\x28\xd5\x02\x00\xd1\x6e\x8f\x5b\x40\x00\x00\x00",
      37);
  const auto large = send("POST", "/v1/completions", bomb, gzip);
  wait_and_pump();
  EXPECT_EQ(large->status, 413);
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(ApiServerTest, EscapesWhatItQuotes) {
  const auto exchange = send("GET", "/\x01\xff\"\n");
  EXPECT_EQ(exchange->status, 404);
  const std::string message(error(parsed(*exchange)).at("message").as_string());
  EXPECT_EQ(message, R"(there is no "/\x01\xff\"\n"; /openapi.json lists what there is)");
}

TEST_F(ApiServerTest, RefusesBodiesThatAreNotOneGoodObject) {
  const std::string deep = R"({"prompt": )" + std::string(100000, '[');
  complete("\xef\xbb\xbf{\"prompt\": \"x\"}");  // a byte-order mark
  EXPECT_EQ(generator_.requests.size(), 1U);
  generator_.requests.clear();
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("{} {}"), deep,
        std::string(R"({"prompt": "a", "prompt": "b"})"), std::string("{\"prompt\": \"\xff\"}"),
        std::string(R"({"temperature": NaN})"), std::string(R"({"temperature": 1e999})"),
        R"({"seed": )" + std::string(100000, '9') + "}", std::string("{\"prompt\": \"a\n\"}")}) {
    const auto exchange = send("POST", "/v1/completions", body);
    if (!exchange->has_ended) wait_and_pump();
    EXPECT_EQ(exchange->status, 400) << body.substr(0, 50);
    EXPECT_LT(exchange->body.size(), 1000U);
  }
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(ApiServerTest, ReadsALargeRequestAsideAndDropsItWhereItsClientLeaves) {
  start({.small_body_bytes = 10});
  const auto stays = send("POST", "/v1/completions", R"({"prompt": "One day"})");
  EXPECT_TRUE(generator_.requests.empty());
  wait_and_pump();
  ASSERT_EQ(generator_.requests.size(), 1U);
  const auto leaves = send("POST", "/v1/completions", R"({"prompt": "One day"})");
  leaves->leave();
  wait_and_pump();
  EXPECT_EQ(generator_.aborted, std::vector<engine::RequestId>{2});
  generator_.end(1, engine::EndReason::kLength, ids("a"));
  pump();
  EXPECT_EQ(stays->status, 200);
}

TEST_F(ApiServerTest, GeneratesATokenToSeeThatItCan) {
  const auto exchange = send("GET", "/health_generate");
  ASSERT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(generator_.requests[0].max_tokens, 1);
  EXPECT_FALSE(exchange->has_ended);
  generator_.end(1, engine::EndReason::kLength, ids("a"));
  pump();
  EXPECT_EQ(exchange->status, 200);
}

TEST_F(ApiServerTest, DescribesItsRoutesAndTheirParameters) {
  const json::value document = parsed(*send("GET", "/openapi.json"));
  const json::value& paths = document.at("paths");
  EXPECT_TRUE(paths.at("/v1/models/{name}").at("get").at("security").at(0).at("key").is_array());
  EXPECT_TRUE(paths.at("/sleep").at("post").at("security").at(0).at("adminKey").is_array());
  const json::value& properties = paths.at("/v1/completions")
                                      .at("post")
                                      .at("requestBody")
                                      .at("content")
                                      .at("application/json")
                                      .at("schema")
                                      .at("properties");
  EXPECT_EQ(properties.at("temperature").at("minimum"), json::value(0.0));
  EXPECT_EQ(properties.at("typical_p").at("maximum"), json::value(1.0));
  EXPECT_EQ(properties.at("n").at("default"), 1);
  EXPECT_EQ(properties.at("bad_words").at("x-support"), "refused");
}

TEST_F(ApiServerTest, CountsWhatItDoesForPrometheus) {
  send("POST", "/v1/completions", R"({"prompt": "x"})");
  generator_.end(1, engine::EndReason::kLength, ids("a"));
  pump();
  const std::string text = send("GET", "/metrics")->body;
  EXPECT_NE(text.find("encore_requests_total{end=\"finished\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE encore_time_to_first_token_seconds histogram\n"), std::string::npos);
  EXPECT_NE(text.find("encore_time_to_first_token_seconds_count 1\n"), std::string::npos);
}

}  // namespace
}  // namespace encore::server
