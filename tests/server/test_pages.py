"""The inspector's files over HTTP: security headers, paths, and how to turn the page off."""


def test_pages_have_a_content_security_policy_and_no_other_file_is_served(plain):
    response = plain.rest.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "set-cookie" not in response.headers and b"<script>" not in response.content
    assert b"style=" not in response.content and b" onclick" not in response.content
    head = plain.rest.head("/")
    assert head.status_code == 200 and head.content == b""
    for path in ("/inspector/", "/inspector/none.js", "/inspector/..%2fpages.py", "/a"):
        assert plain.rest.get(path).status_code == 404
    assert plain.rest.post("/").status_code == 404


def test_models_of_other_tools_have_neither_metadata_nor_examples(plain):
    models = plain.rest.get("/inspector/models.json").json()["models"]
    assert models == [
        {"name": name, "version": 1, "facts": None, "examples": []} for name in ("rules", "judge")
    ]


def test_no_inspector(serve, rules):
    client = serve(model_name="rules", model_base_path=str(rules), inspector=False).rest
    assert client.get("/").status_code == client.get("/inspector/main.js").status_code == 404
    assert client.get("/v1/models/rules").status_code == 200
