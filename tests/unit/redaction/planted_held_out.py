"""The held-out half: written before the rules, not looked at while they were written."""

from __future__ import annotations

from planted import (
    BASE32,
    BASE64,
    HEX,
    LOWER,
    UPPER,
    URLSAFE,
    Planted,
    alnum,
    b64,
    filler,
    hexa,
    jwt,
    pem,
    pem_body,
    uuid,
)

__all__ = ["HELD_OUT"]

_gitlab = "glp" + "at-" + filler(URLSAFE.replace("-", ""), 20, "ho-gitlab")
_slack_user = "xox" + "p-" + f"2{'1' * 11}-{'3' * 12}-{'4' * 13}-" + hexa(32, "ho-slack")
_openai_project = "sk-" + "proj-" + alnum(60, "ho-op1") + "T3Blbk" + "FJ" + alnum(60, "ho-op2")
_anthropic = "sk-" + "ant-" + "api03-" + filler(URLSAFE, 93, "ho-ant") + "AA"
_aws_secret = filler(BASE64, 40, "ho-aws")
_aws_session = "IQoJb3JpZ2luX2Vj" + filler(BASE64, 300, "ho-sts") + "=="
_stripe_hook = "whs" + "ec_" + alnum(32, "ho-whsec")
_pypi = "pyp" + "i-AgEIcHlwaS5vcmc" + filler(URLSAFE, 150, "ho-pypi")
_twilio_auth = hexa(32, "ho-twilio")
_telegram = "7" + "0" * 3 + "112233:AA" + filler(URLSAFE, 33, "ho-tg")
_discord_hook = "https://discord.com/api/web" + "hooks/112233445566778899/" + filler(URLSAFE, 68, "ho-dh")
_hugging = "h" + "f_" + filler("".join(set(URLSAFE) - set("-_0123456789")), 34, "ho-hf")
_databricks = "da" + "pi" + hexa(32, "ho-dapi")
_square = "sq0" + "csp-" + filler(URLSAFE, 43, "ho-sq")
_mailchimp = hexa(32, "ho-mc") + "-us" + "14"
_grafana = "gls" + "a_" + alnum(32, "ho-gf") + "_" + hexa(8, "ho-gf2")
_vault = "hv" + "s." + filler(URLSAFE, 92, "ho-hvs")
_groq = "gs" + "k_" + alnum(52, "ho-groq")
_atlassian = "ATA" + "TT3xFfGF0" + filler(URLSAFE, 170, "ho-atl") + "=" + hexa(8, "ho-atl2").upper()
_docker_pat = "dckr" + "_pat_" + filler(URLSAFE, 27, "ho-dckr")
_linear = "lin" + "_api_" + alnum(40, "ho-lin")
_tailscale = "tskey" + "-auth-" + alnum(12, "ho-ts") + "CNTRL-" + alnum(32, "ho-ts2")
_age = "AGE-SECRET" + "-KEY-1" + filler("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58, "ho-age")
_replicate = "r8" + "_" + alnum(37, "ho-r8")
_newrelic = "NRA" + "K-" + filler(UPPER, 27, "ho-nr")
_google_refresh = "1" + "//0g" + filler(URLSAFE, 60, "ho-gref")
_google_client = "GOC" + "SPX-" + filler(URLSAFE, 28, "ho-gcs")
_heroku = uuid("ho-heroku")
_bearer = filler(URLSAFE, 40, "ho-bearer")
_basic = b64("deploy:" + alnum(14, "ho-basic"))
_session = filler(URLSAFE, 48, "ho-session")
_sas = filler(BASE64, 43, "ho-sas").replace("+", "%2B").replace("/", "%2F") + "%3D"
_kube = b64(pem("RSA PRIVATE KEY", "ho-kube"))
_mixed = "Tr0ub4dor" + "&3-" + alnum(5, "ho-mixed")
_plain = "correct-horse-" + alnum(6, "ho-plain")

HELD_OUT: tuple[Planted, ...] = (
    Planted(
        "gitlab token in a remote's address",
        f"$ git remote -v\norigin\thttps://oauth2:{_gitlab}@gitlab.example.com/team/app.git (fetch)\n",
        (_gitlab,),
        ("https://oauth2:", "@gitlab.example.com/team/app.git (fetch)"),
    ),
    Planted(
        "slack user token in prose",
        f"I used {_slack_user} yesterday, it still works.",
        (_slack_user,),
        ("I used ", " yesterday"),
    ),
    Planted(
        "openai project key in a call",
        f'client = OpenAI(api_key="{_openai_project}", timeout=30)',
        (_openai_project,),
        ("client = OpenAI(api_key=", "timeout=30)"),
    ),
    Planted(
        "anthropic key exported",
        f"export ANTHROPIC_API_KEY={_anthropic}\npython run.py",
        (_anthropic,),
        ("export ANTHROPIC_API_KEY=", "python run.py"),
    ),
    Planted(
        "aws credentials file",
        f"[default]\naws_access_key_id = AKI{'A'}{filler(BASE32, 16, 'ho-akia')}\naws_secret_access_key = {_aws_secret}\nregion = eu-west-1\n",
        (_aws_secret, filler(BASE32, 16, "ho-akia")),
        ("[default]", "region = eu-west-1"),
    ),
    Planted(
        "aws session token in json",
        '{"Credentials": {"SessionToken": "' + _aws_session + '", "Expiration": "2026-01-02T03:04:05Z"}}',
        (_aws_session,),
        ('"Expiration": "2026-01-02T03:04:05Z"',),
    ),
    Planted(
        "stripe webhook secret in yaml",
        f"stripe:\n  webhook_signing: {_stripe_hook}\n  mode: test\n",
        (_stripe_hook,),
        ("mode: test",),
    ),
    Planted(
        "pypi token in pypirc",
        f"[pypi]\nusername = __token__\npassword = {_pypi}\n",
        (_pypi,),
        ("username = __token__", "password = "),
    ),
    Planted(
        "twilio auth token",
        f"account_sid: AC{hexa(32, 'ho-sid')}\nauth_token: {_twilio_auth}\nfrom: +15550100\n",
        (_twilio_auth,),
        ("from: +15550100",),
    ),
    Planted(
        "telegram bot address",
        f"GET https://api.telegram.org/bot{_telegram}/getUpdates 200",
        (_telegram,),
        ("/getUpdates 200",),
    ),
    Planted(
        "discord webhook", f"notify: {_discord_hook}\nchannel: ops", (_discord_hook[-68:],), ("channel: ops",)
    ),
    Planted(
        "hugging face login",
        f"huggingface-cli login --token {_hugging} --add-to-git-credential",
        (_hugging,),
        ("--add-to-git-credential",),
    ),
    Planted(
        "databricks config",
        f"[DEFAULT]\nhost = https://adb-1.azuredatabricks.net\ntoken = {_databricks}",
        (_databricks,),
        ("host = https://adb-1.azuredatabricks.net",),
    ),
    Planted("square secret", f"SQUARE_APPLICATION: {_square}", (_square,)),
    Planted(
        "mailchimp key",
        f"curl -u anystring:{_mailchimp} https://us14.api.mailchimp.com/3.0/lists",
        (_mailchimp,),
        ("https://us14.api.mailchimp.com/3.0/lists",),
    ),
    Planted(
        "grafana service account",
        f"Using grafana key {_grafana} for the dashboards",
        (_grafana,),
        (" for the dashboards",),
    ),
    Planted(
        "vault token in a header",
        f'curl -H "X-Vault-Token: {_vault}" "$VAULT_ADDR/v1/secret/data/app"',
        (_vault,),
        ("X-Vault-Token: ", '"$VAULT_ADDR/v1/secret/data/app"'),
    ),
    Planted("groq key", f"GROQ={_groq} uv run main.py", (_groq,), ("uv run main.py",)),
    Planted(
        "atlassian token with mail",
        f"curl --user ann@example.com:{_atlassian} https://x.atlassian.net/rest/api/3/myself",
        (_atlassian,),
        ("https://x.atlassian.net/rest/api/3/myself",),
    ),
    Planted(
        "docker login by pipe",
        f"echo {_docker_pat} | docker login -u ann --password-stdin",
        (_docker_pat,),
        ("| docker login -u ann --password-stdin",),
    ),
    Planted(
        "linear key",
        f"Authorization: {_linear}\r\nContent-Type: application/json\r\n",
        (_linear,),
        ("Content-Type: application/json",),
    ),
    Planted(
        "tailscale up",
        f"sudo tailscale up --authkey={_tailscale} --ssh",
        (_tailscale,),
        ("sudo tailscale up --authkey=", " --ssh"),
    ),
    Planted("age identity", f"# created: 2026-01-01\n{_age}\n", (_age,), ("# created: 2026-01-01",)),
    Planted("replicate token", f'{{"env": {{"REPLICATE": "{_replicate}"}}}}', (_replicate,)),
    Planted("new relic key", f"newrelic install -k {_newrelic}", (_newrelic,)),
    Planted(
        "google refresh token",
        '{"refresh_token": "' + _google_refresh + '", "type": "authorized_user"}',
        (_google_refresh,),
        ('"type": "authorized_user"',),
    ),
    Planted(
        "google client secret",
        f"client_secret={_google_client}&grant_type=authorization_code",
        (_google_client,),
        ("&grant_type=authorization_code",),
    ),
    Planted("heroku key is a uuid", f"HEROKU_API_KEY={_heroku} heroku apps", (_heroku,), ("heroku apps",)),
    Planted(
        "bearer in a json log",
        '{"level":"debug","headers":{"authorization":"Bearer ' + _bearer + '","accept":"*/*"}}',
        (_bearer,),
        ('"accept":"*/*"', "Bearer "),
    ),
    Planted(
        "bearer in javascript",
        "fetch(url, { headers: { 'Authorization': `Bearer " + _bearer + "` } })",
        (_bearer,),
        ("fetch(url",),
    ),
    Planted(
        "proxy authorisation",
        f"Proxy-Authorization: Basic {_basic}\nHost: proxy.example.net",
        (_basic,),
        ("Proxy-Authorization: Basic ", "Host: proxy.example.net"),
    ),
    Planted(
        "session cookie sent",
        f"Cookie: theme=dark; sessionid={_session}; lang=en\nAccept: */*",
        (_session,),
        ("Accept: */*",),
    ),
    Planted(
        "azure shared access signature",
        f"https://acct.blob.core.windows.net/c/f.csv?sv=2022-11-02&sp=r&sig={_sas}",
        (_sas,),
        ("https://acct.blob.core.windows.net/c/f.csv",),
    ),
    Planted(
        "kubeconfig",
        f"users:\n- name: dev\n  user:\n    client-key-data: {_kube}\n",
        (_kube,),
        ("- name: dev",),
    ),
    Planted(
        "openssh key, end cut off",
        "$ cat ~/.ssh/id_ed25519\n-----BEGIN OPENSSH PRIVATE "
        "KEY-----\n" + "\n".join(pem_body("ho-cut")) + "\n[output truncated]",
        tuple(pem_body("ho-cut")),
        ("$ cat ~/.ssh/id_ed25519",),
    ),
    Planted(
        "service account with escaped newlines",
        '{"type": "service_account", "private_key": "'
        + pem("PRIVATE KEY", "ho-sa", newline="\\n")
        + '\\n", "client_email": "a@b.iam.gserviceaccount.com"}',
        tuple(pem_body("ho-sa")),
        ('"client_email": "a@b.iam.gserviceaccount.com"',),
    ),
    Planted(
        "jwt in a query", f"GET /stream?jwt={jwt('ho-jwt')}&v=2 HTTP/1.1", (jwt("ho-jwt"),), ("HTTP/1.1",)
    ),
    Planted(
        "postgres by environment",
        f"PGPASSWORD={_mixed} psql -h db.internal -U app -c 'select 1'",
        (_mixed,),
        ("psql -h db.internal -U app",),
    ),
    Planted(
        "redis without a user",
        f"redis://:{_plain}@cache.internal:6379/0",
        (_plain,),
        ("redis://:", "@cache.internal:6379/0"),
    ),
    Planted(
        "ado connection string",
        f"Server=tcp:sql.example.net,1433;User ID=sa;Password={_mixed};Encrypt=True;",
        (_mixed,),
        ("Server=tcp:sql.example.net,1433;", ";Encrypt=True;"),
    ),
    Planted(
        "jdbc query parameters",
        f"jdbc:mysql://db:3306/app?user=root&password={_plain}&useSSL=false",
        (_plain,),
        ("jdbc:mysql://db:3306/app", "useSSL=false"),
    ),
    Planted(
        "netrc",
        f"machine api.example.com login ann password {_mixed}\n",
        (_mixed,),
        ("machine api.example.com login ann password ",),
    ),
    Planted(
        "npmrc with a plain token",
        f"//registry.example.com/:_authToken={uuid('ho-npmrc')}\nalways-auth=true",
        (uuid("ho-npmrc"),),
        ("always-auth=true",),
    ),
    Planted(
        "ruby hash",
        f'Config.new(:api_secret => "{hexa(40, "ho-ruby")}", :retries => 3)',
        (hexa(40, "ho-ruby"),),
        (":retries => 3",),
    ),
    Planted(
        "spring properties",
        f"spring.datasource.username=app\nspring.datasource.password={_plain}\nserver.port=8080\n",
        (_plain,),
        ("spring.datasource.username=app", "server.port=8080"),
    ),
    Planted(
        "docker compose list",
        f"    environment:\n      - MYSQL_ROOT_PASSWORD={_mixed}\n      - TZ=UTC\n",
        (_mixed,),
        ("- TZ=UTC",),
    ),
    Planted(
        "arguments as escaped json",
        '{"arguments": "{\\"password\\": \\"' + _plain + '\\", \\"user\\": \\"ann\\"}"}',
        (_plain,),
        ('\\"user\\": \\"ann\\"',),
    ),
    Planted(
        "german",
        f"Benutzer: ann\nPasswort: {_mixed}\nServer: db1\n",
        (_mixed,),
        ("Benutzer: ann", "Server: db1"),
    ),
    Planted("russian", f"логин: ann\nпароль: {_plain}\n", (_plain,), ("логин: ann",)),
    Planted(
        "said by a user",
        f"ok, the password is {_mixed} and the host is db1",
        (_mixed,),
        ("and the host is db1",),
    ),
    Planted(
        "dd key by name",
        f"datadog:\n  apiKey: {hexa(32, 'ho-dd')}\n  site: datadoghq.eu\n",
        (hexa(32, "ho-dd"),),
        ("site: datadoghq.eu",),
    ),
    Planted(
        "rust constant",
        f'const SIGNING_SECRET: &str = "{filler(LOWER, 28, "ho-rust")}";',
        (filler(LOWER, 28, "ho-rust"),),
        ("const SIGNING_SECRET: &str = ",),
    ),
    Planted(
        "pgp block",
        "gpg --export-secret-keys\n" + pem("PGP PRIVATE KEY BLOCK", "ho-pgp") + "\n$ ",
        tuple(pem_body("ho-pgp")),
        ("gpg --export-secret-keys",),
    ),
    Planted(
        "a signed address",
        f"https://b.s3.amazonaws.com/k?X-Amz-Expires=900&X-Amz-Signature={filler(HEX, 64, 'ho-s3')}",
        (filler(HEX, 64, "ho-s3"),),
        ("https://b.s3.amazonaws.com/k",),
    ),
)
