"""The inspector's pages as a server sends them: policy, paths, and none if that is wished."""


def test_pages_carry_a_policy_and_nothing_else_is_served(serve, rules):
    client = serve(model_name="rules", model_base_path=str(rules)).rest
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "set-cookie" not in answer.headers and b"<script>" not in answer.content
    assert b"style=" not in answer.content and b" onclick" not in answer.content
    assert client.head("/").status_code == 200 and client.head("/").content == b""
    for path in ("/inspector/", "/inspector/none.js", "/inspector/..%2finspector.py", "/a"):
        assert client.get(path).status_code == 404
    assert client.post("/").status_code == 404
    (model,) = client.get("/inspector/models.json").json()["models"]
    assert model == {"name": "rules", "version": 1, "facts": None, "examples": []}


def test_no_inspector(serve, rules):
    client = serve(model_name="rules", model_base_path=str(rules), inspector=False).rest
    assert client.get("/").status_code == client.get("/inspector/main.js").status_code == 404
    assert client.get("/v1/models/rules").status_code == 200
