"""The known half: what the rules were written against."""

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

__all__ = ["KNOWN"]

_ghp = "gh" + "p_" + alnum(36, "k-ghp")
_ghs = "gh" + "s_" + alnum(36, "k-ghs")
_fine_grained = "github" + "_pat_" + alnum(22, "k-fg") + "_" + alnum(59, "k-fg2")
_aws_id = "AKI" + "A" + filler(BASE32, 16, "k-akia")
_aws_secret = filler(BASE64, 40, "k-aws")
_gcp_key = "AI" + "za" + filler(URLSAFE, 35, "k-aiza")
_gcp_access = "ya" + "29." + filler(URLSAFE, 120, "k-ya29")
_account_key = filler(BASE64, 86, "k-azure") + "=="
_entra = alnum(3, "k-entra") + "8" + "Q~" + filler(URLSAFE, 34, "k-entra2")
_slack_bot = "xox" + "b-" + "1" * 11 + "-" + "2" * 12 + "-" + alnum(24, "k-slack")
_slack_hook = (
    "https://hooks.slack"
    ".com/services/T" + filler(UPPER, 8, "k-t") + "/B" + filler(UPPER, 10, "k-b") + "/" + alnum(24, "k-h")
)
_stripe = "sk" + "_live_" + alnum(24, "k-stripe")
_openai = "sk" + "-" + alnum(48, "k-openai")
_openrouter = "sk" + "-or-v1-" + hexa(64, "k-or")
_npm = "np" + "m_" + alnum(36, "k-npm")
_sendgrid = "S" + "G." + filler(URLSAFE, 22, "k-sg") + "." + filler(URLSAFE, 43, "k-sg2")
_twilio = "S" + "K" + hexa(32, "k-tw")
_discord_bot = (
    "MT"
    + alnum(24, "k-db")
    + "."
    + filler(URLSAFE.replace("-", ""), 6, "k-db2")
    + "."
    + filler(URLSAFE, 38, "k-db3")
)
_digitalocean = "do" + "p_v1_" + hexa(64, "k-do")
_shopify = "shp" + "at_" + hexa(32, "k-shop")
_mailgun = "ke" + "y-" + hexa(32, "k-mg")
_atlas = alnum(14, "k-tfc") + ".atlas" + "v1." + filler(URLSAFE, 67, "k-tfc2")
_figma = "fig" + "d_" + filler(URLSAFE, 40, "k-fig")
_postman = "PMA" + "K-" + hexa(24, "k-pm") + "-" + hexa(34, "k-pm2")
_supabase = "sb" + "p_" + hexa(40, "k-sbp")
_doppler = "dp" + ".pt." + alnum(43, "k-dp")
_xai = "xa" + "i-" + alnum(80, "k-xai")
_sentry = hexa(32, "k-sentry")
_word = "hunt" + "er2"
_mixed = "P4ss" + "!w0rd#" + alnum(4, "k-mixed")
_long = alnum(32, "k-long")
_hex40 = hexa(40, "k-hex40")
_basic = b64("ann:" + _mixed)
_cookie = filler(URLSAFE, 44, "k-cookie")
_crypt = "$2" + "b$12$" + filler(BASE64.replace("+", "."), 53, "k-crypt")

KNOWN: tuple[Planted, ...] = (
    Planted(
        "github token in a shell",
        f"$ GH_HOST=github.com gh auth login --with-token <<< {_ghp}\n✓ Logged in",
        (_ghp,),
        ("gh auth login", "✓ Logged in"),
    ),
    Planted(
        "github token in an address",
        f"git clone https://x-access-token:{_ghs}@github.com/a/b.git",
        (_ghs,),
        ("git clone https://x-access-token:", "@github.com/a/b.git"),
    ),
    Planted(
        "fine-grained github token", f"env:\n  GH: {_fine_grained}\n  CI: 1", (_fine_grained,), ("CI: 1",)
    ),
    Planted(
        "aws key id and secret exported",
        f"export AWS_ACCESS_KEY_ID={_aws_id}\nexport AWS_SECRET_ACCESS_KEY={_aws_secret}\n",
        (_aws_id, _aws_secret),
        ("export AWS_ACCESS_KEY_ID=", "export AWS_SECRET_ACCESS_KEY="),
    ),
    Planted(
        "google key in an address",
        f"https://maps.googleapis.com/maps/api/js?key={_gcp_key}&libraries=places",
        (_gcp_key,),
        ("&libraries=places",),
    ),
    Planted(
        "google access token",
        f"$ gcloud auth print-access-token\n{_gcp_access}\n$ ",
        (_gcp_access,),
        ("$ gcloud auth print-access-token",),
    ),
    Planted(
        "azure storage connection string",
        f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={_account_key};EndpointSuffix=core.windows.net",
        (_account_key,),
        ("AccountName=acct;AccountKey=", ";EndpointSuffix=core.windows.net"),
    ),
    Planted(
        "entra client secret",
        f"az login --service-principal -u {uuid('k-app')} -p {_entra} --tenant t",
        (_entra,),
        ("--tenant t", uuid("k-app")),
    ),
    Planted("slack bot token", f'app = App(token="{_slack_bot}")', (_slack_bot,), ("app = App(token=",)),
    Planted(
        "slack webhook", f"curl -X POST --data '{{}}' {_slack_hook}", (_slack_hook[-24:],), ("curl -X POST",)
    ),
    Planted(
        "stripe live key",
        f"stripe.api_key = '{_stripe}'  # rotate",
        (_stripe,),
        ("stripe.api_key = '", "# rotate"),
    ),
    Planted(
        "openai key said by a user",
        f"my key is {_openai}, please put it in .env",
        (_openai,),
        (", please put it in .env",),
    ),
    Planted(
        "openrouter key in json",
        f'{{"provider": {{"openrouter": {{"key": "{_openrouter}"}}}}}}',
        (_openrouter,),
        ("openrouter",),
    ),
    Planted(
        "npm token", f"npm config set //npm.example.com/:_authToken {_npm}", (_npm,), ("npm config set",)
    ),
    Planted("sendgrid key", f"SENDGRID={_sendgrid}", (_sendgrid,)),
    Planted("twilio key", f"client = Client('{_twilio}', secret)", (_twilio,), ("client = Client(",)),
    Planted("discord bot", f'client.run("{_discord_bot}")', (_discord_bot,), ("client.run(",)),
    Planted(
        "digitalocean token", f"doctl auth init -t {_digitalocean}", (_digitalocean,), ("doctl auth init",)
    ),
    Planted(
        "shopify token", f"X-Shopify-Access-Token: {_shopify}", (_shopify,), ("X-Shopify-Access-Token: ",)
    ),
    Planted("mailgun key", f"--user 'api:{_mailgun}'", (_mailgun,)),
    Planted(
        "terraform cloud",
        f'credentials "app.terraform.io" {{\n  token = "{_atlas}"\n}}',
        (_atlas,),
        ("app.terraform.io",),
    ),
    Planted("figma", f"FIGMA={_figma} npx figma-export", (_figma,), ("npx figma-export",)),
    Planted("postman", f"newman run --postman {_postman}", (_postman,)),
    Planted("supabase", f"supabase login\nEnter: {_supabase}\nDone", (_supabase,), ("Done",)),
    Planted("doppler", f"doppler run --token {_doppler} -- make", (_doppler,), ("-- make",)),
    Planted("xai", f"url=https://api.x.ai bearer={_xai}", (_xai,)),
    Planted(
        "sentry address",
        f"SENTRY_DSN=https://{_sentry}@o1.ingest.sentry.io/42",
        (_sentry,),
        ("@o1.ingest.sentry.io/42",),
    ),
    Planted(
        "bearer with curl",
        f"curl -sS -H 'Authorization: Bearer {_long}' https://api.example.com/v1/me",
        (_long,),
        ("Authorization: Bearer ", "https://api.example.com/v1/me"),
    ),
    Planted("basic in python", f'headers = {{"Authorization": "Basic {_basic}"}}', (_basic,), ("Basic ",)),
    Planted("token scheme", f"> authorization: token {_hex40}\n> accept: */*", (_hex40,), ("> accept: */*",)),
    Planted(
        "x-api-key",
        f"x-api-key: {_long}\nanthropic-version: 2023-06-01",
        (_long,),
        ("x-api-key: ", "anthropic-version: 2023-06-01"),
    ),
    Planted(
        "set-cookie",
        f"< Set-Cookie: connect.sid=s%3A{_cookie}; Path=/; HttpOnly\n< Date: now",
        (_cookie,),
        ("Path=/; HttpOnly", "< Date: now"),
    ),
    Planted(
        "postgres address",
        f"DATABASE_URL=postgres://app:{_mixed}@db.internal:5432/app?sslmode=require",
        (_mixed,),
        ("postgres://app:", "@db.internal:5432/app?sslmode=require"),
    ),
    Planted(
        "mongo address with a simple password",
        f"mongodb+srv://root:{_word}@cluster0.ab1.mongodb.net/test",
        (_word,),
        ("mongodb+srv://root:", "@cluster0.ab1.mongodb.net/test"),
    ),
    Planted(
        "libpq pairs",
        f"psycopg.connect('host=db user=app password={_word} dbname=x')",
        (_word,),
        ("host=db user=app password=", "dbname=x"),
    ),
    Planted(
        "dotenv with a word",
        "DB_HOST=localhost\nDB_PASSWORD=swordfish\nDB_PORT=5432\n",
        ("swordfish",),
        ("DB_HOST=localhost", "DB_PORT=5432"),
    ),
    Planted("quoted dotenv", f'SECRET_KEY="{_mixed}"\nDEBUG=1', (_mixed,), ("DEBUG=1",)),
    Planted(
        "yaml password",
        f"smtp:\n  user: ann\n  password: {_word}\n  port: 587\n",
        (_word,),
        ("user: ann", "port: 587"),
    ),
    Planted(
        "json password",
        f'{{"user": "ann", "password": "{_word}", "remember": true}}',
        (_word,),
        ('"user": "ann"', '"remember": true'),
    ),
    Planted(
        "python constant", f'API_SECRET: Final[str] = "{_long}"', (_long,), ("API_SECRET: Final[str] = ",)
    ),
    Planted(
        "kubernetes variable",
        f"- name: DB_PASSWORD\n  value: {_mixed}\n- name: TZ\n  value: UTC\n",
        (_mixed,),
        ("- name: DB_PASSWORD", "value: UTC"),
    ),
    Planted(
        "command line flag",
        f"mysqldump --user=root --password={_word} app > dump.sql",
        (_word,),
        ("mysqldump --user=root --password=", "app > dump.sql"),
    ),
    Planted("flag and space", f"docker login -u ann --password {_mixed} ghcr.io", (_mixed,), ("ghcr.io",)),
    Planted(
        "mysql short flag", f"mysql -uroot -p{_mixed} -e 'show tables'", (_mixed,), ("-e 'show tables'",)
    ),
    Planted(
        "sshpass", f"sshpass -p '{_mixed}' ssh root@10.0.0.5 uptime", (_mixed,), ("ssh root@10.0.0.5 uptime",)
    ),
    Planted(
        "curl user",
        f"curl -u admin:{_mixed} http://localhost:9200/_cat",
        (_mixed,),
        ("curl -u admin:", "http://localhost:9200/_cat"),
    ),
    Planted("sql", f"ALTER USER app WITH PASSWORD '{_word}';", (_word,), ("ALTER USER app WITH PASSWORD ",)),
    Planted(
        "identified by", f"CREATE USER 'app'@'%' IDENTIFIED BY '{_word}';", (_word,), ("IDENTIFIED BY ",)
    ),
    Planted(
        "xml element",
        f"<server><id>nexus</id><password>{_mixed}</password></server>",
        (_mixed,),
        ("<id>nexus</id>", "</password></server>"),
    ),
    Planted(
        "rsa key",
        "cat key.pem\n" + pem("RSA PRIVATE KEY", "k-rsa") + "\n$ ls",
        tuple(pem_body("k-rsa")),
        ("cat key.pem", "$ ls", "BEGIN RSA PRIVATE KEY", "END RSA PRIVATE KEY"),
    ),
    Planted(
        "key with line numbers",
        "\n".join(f"{n:>6}→{line}" for n, line in enumerate(pem("EC PRIVATE KEY", "k-ec").split("\n"), 1)),
        tuple(pem_body("k-ec")),
    ),
    Planted("jwt alone", f"token for ann: {jwt('k-jwt')}.", (jwt("k-jwt"),)),
    Planted("docker config", f'{{"auths": {{"ghcr.io": {{"auth": "{_basic}"}}}}}}', (_basic,), ("ghcr.io",)),
    Planted(
        "hash of a password",
        f"INSERT INTO users VALUES (1, 'ann', '{_crypt}');",
        (_crypt,),
        ("INSERT INTO users",),
    ),
    Planted("query token", f"GET /feed?access_token={_long}&page=2", (_long,), ("&page=2",)),
    Planted("spanish", f"usuario: ana\ncontraseña: {_mixed}\n", (_mixed,), ("usuario: ana",)),
    Planted("french", f"Le mot de passe est : {_mixed}", (_mixed,)),
    Planted("chinese", f"用户名：ann\n密码：{_mixed}\n", (_mixed,), ("用户名：ann",)),
    Planted("japanese", f"パスワードは {_mixed} です", (_mixed,), ("です",)),
    Planted(
        "camel case", f"const cfg = {{ clientSecret: '{_long}', retries: 3 }}", (_long,), ("retries: 3",)
    ),
    Planted(
        "escaped json", f'"input": "{{\\"api_key\\": \\"{_long}\\", \\"q\\": 1}}"', (_long,), ('\\"q\\": 1',)
    ),
    Planted("windows", f"$env:APP_TOKEN = '{_long}'\nsetx APP_SECRET {_long}", (_long,)),
    Planted("ini with spaces", f"[db]\npasswd = {_mixed}\nhost = db1", (_mixed,), ("host = db1",)),
    Planted(
        "lowercase run",
        f"secret_key_base: {filler(LOWER, 64, 'k-rails')}",
        (filler(LOWER, 64, "k-rails"),),
        ("secret_key_base: ",),
    ),
    Planted("hex key", f"ENCRYPTION_KEY={filler(HEX, 64, 'k-enc')}", (filler(HEX, 64, "k-enc"),)),
    Planted(
        "api key in mixed capitals",
        f"-H 'X-API-Key: {_long}' -d @body.json",
        (_long,),
        ("X-API-Key: ", "-d @body.json"),
    ),
    Planted(
        "secret behind a space",
        f"aws configure set aws_secret_access_key {_aws_secret}",
        (_aws_secret,),
        ("aws configure set",),
    ),
    Planted(
        "token in a sentence",
        f"the token {_long} was rejected with 401",
        (_long,),
        ("was rejected with 401",),
    ),
    Planted(
        "go address",
        f"sql.Open('mysql', 'app:{_mixed}@tcp(db1:3306)/shop')",
        (_mixed,),
        ("@tcp(db1:3306)/shop",),
    ),
    Planted("sqlcmd", f"sqlcmd -S db1 -U sa -P {_mixed} -Q 'select 1'", (_mixed,), ("-Q 'select 1'",)),
    Planted(
        "passphrase",
        "ssh_passphrase = 'correct horse battery staple'",
        ("horse battery",),
        ("ssh_passphrase = ",),
    ),
    Planted("asked for and answered", f"Password for ann: {_mixed}", (_mixed,), ("Password for ann: ",)),
    Planted(
        "property behind dots", f"spring.redis.password: {_mixed}", (_mixed,), ("spring.redis.password: ",)
    ),
    Planted("variable that ends in key", f"MY_APP_KEY={_long}", (_long,), ("MY_APP_KEY=",)),
    Planted(
        "base64 of a key",
        f"tls.key: {b64(pem('PRIVATE KEY', 'k-tls'))}",
        (b64(pem("PRIVATE KEY", "k-tls")),),
        ("tls.key: ",),
    ),
    Planted(
        "putty key",
        "Private-Lines: 7\n" + "\n".join(pem_body("k-ppk")[:-1]) + "\nPrivate-MAC: 0",
        tuple(pem_body("k-ppk")[:-1]),
        ("Private-MAC: 0",),
    ),
)
