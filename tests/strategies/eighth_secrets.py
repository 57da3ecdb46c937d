"""The eighth list: what an agent's tools print in a day's work, from stack traces to home routers.

Written before its first run. The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of
the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_eighth_look_alikes", "make_eighth_secrets"]


def make_eighth_secrets(seed: int) -> list[BlindSecret]:
    """Returns 152 texts of 41 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_eighth_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "stack traces": (
        "psycopg2.OperationalError: connection to 'postgresql://billing:⟦pw⟧@db-3.internal:5432/ledger' failed",
        "  File \"app.py\", line 31, in login\n    client = Client(user='svc', password='⟦leet⟧')\nTimeoutError",
        "java.sql.SQLException: Access denied for url jdbc:mysql://db:3306/shop?user=root&password=⟦drawn⟧",
        'thread \'main\' panicked at src/main.rs:12: Config { host: "db", password: "⟦marked⟧", port: 5432 }',
    ),
    "dumps of objects": (
        "Settings(debug=True, secret_key='⟦strong⟧', database='app.db')",
        "{'user': 'ann', 'passwd': '⟦camel⟧', 'active': True}",
        "<Credentials username=ann password=⟦leet⟧>",
        '#<struct Login name="ann", password="⟦pw⟧">',
    ),
    "environment": (
        "PGPASSWORD=⟦marked⟧ psql -h db -U app",
        "export SENDGRID_API_KEY=SG.⟦url:22⟧.⟦url:43⟧",
        "set -x RAILS_MASTER_KEY ⟦hex:32⟧",
        "$env:ARM_CLIENT_SECRET = '⟦strong⟧'",
        'setx REDIS_PASSWORD "⟦drawn⟧" /M',
    ),
    "docker": (
        "docker login -u builder -p ⟦leet⟧ registry.example.org",
        "docker run -e MYSQL_ROOT_PASSWORD=⟦short⟧ -d mysql:8",
        "ENV JWT_SIGNING_KEY=⟦alnum:40⟧",
        "      - POSTGRES_PASSWORD=⟦year⟧",
    ),
    "kubernetes": (
        "kubectl create secret generic db --from-literal=password=⟦marked⟧",
        "data:\n  password: ⟦basic⟧\n  username: YWRtaW4=",
        "    client-key-data: ⟦b64:120⟧",
        "stringData:\n  api-token: ⟦alnum:32⟧",
    ),
    "terraform": (
        'resource "aws_db_instance" "main" {\n  username = "root"\n  password = "⟦drawn⟧"\n}',
        'db_password = "⟦leet⟧" # terraform.tfvars',
        'TF_VAR_admin_password="⟦camel⟧" terraform apply',
    ),
    "ansible": (
        "ansible_become_pass: ⟦leet⟧",
        "web1 ansible_host=10.0.0.4 ansible_user=ops ansible_ssh_pass=⟦drawn⟧",
        'vault_mysql_password: "⟦marked⟧"',
    ),
    "clouds": (
        "aws_secret_access_key = ⟦b64:40⟧",
        '"AccessKeyId": "ASIA⟪upper:16⟫", "SecretAccessKey": "⟦b64:40⟧", "SessionToken": "⟦b64:200⟧"',
        "AccountKey=⟦b64:86⟧==;EndpointSuffix=core.windows.net",
        '"private_key_id": "⟪hex:40⟫", "client_secret": "GOCSPX-⟦url:28⟧"',
        "https://acct.blob.core.windows.net/c/f.csv?sv=2023-01-03&se=2026-01-01&sr=b&sp=r&sig=⟦b64:43⟧%3D",
    ),
    "forges": (
        "git clone https://ann:ghp_⟦alnum:36⟧@github.com/acme/app.git",
        "remote: https://oauth2:glpat-⟦url:20⟧@gitlab.example.org/acme/app.git (fetch)",
        "GITHUB_TOKEN: ghs_⟦alnum:36⟧",
        "Bitbucket app password for ann is ATBB⟦alnum:28⟧",
    ),
    "package registries": (
        "//npm.example.com/:_authToken=npm_⟦alnum:36⟧",
        "[pypi]\nusername = __token__\npassword = pypi-AgEIcHlwaS5vcmc⟦url:80⟧",
        "machine repo.example.org login ci password ⟦drawn⟧",
        "<server><id>nexus</id><username>ci</username><password>⟦marked⟧</password></server>",
        "cargo login ⟦alnum:35⟧",
    ),
    "models": (
        "OPENAI_API_KEY=sk-proj-⟦url:74⟧",
        "anthropic.Anthropic(api_key='sk-ant-api03-⟦url:93⟧')",
        "HF_TOKEN=hf_⟦alnum:34⟧",
        "curl -H 'x-goog-api-key: AIza⟦url:35⟧' https://generativelanguage.googleapis.com/v1/models",
        'client = Groq(api_key="gsk_⟦alnum:52⟧")',
    ),
    "payments": (
        "stripe.api_key = 'sk_live_⟦alnum:24⟧'",
        "STRIPE_WEBHOOK_SECRET=whsec_⟦alnum:32⟧",
        "square access token: EAAA⟦url:60⟧",
        "braintree private_key=⟦hex:32⟧",
    ),
    "chat services": (
        "slack_token: xoxb-⟪digits:12⟫-⟪digits:12⟫-⟦alnum:24⟧",
        "https://hooks.slack.com/services/T⟪upper:8⟫/B⟪upper:8⟫/⟦alnum:24⟧",
        "https://discord.com/api/webhooks/⟪digits:18⟫/⟦url:68⟧",
        "bot = telebot.TeleBot('⟪digits:10⟫:AA⟦url:33⟧')",
    ),
    "http": (
        "Authorization: Bearer ⟦url:48⟧",
        "> Authorization: Basic ⟦basic⟧",
        "X-Api-Key: ⟦alnum:32⟧",
        "Set-Cookie: sessionid=⟦lower:32⟧; HttpOnly; Path=/",
        "Proxy-Authorization: Basic ⟦basic⟧",
    ),
    "urls": (
        "GET /v1/items?api_key=⟦hex:32⟧&page=2 HTTP/1.1",
        "redis://:⟦strong⟧@cache:6379/0",
        "amqps://worker:⟦drawn⟧@mq.example.org/vhost",
        "https://example.org/reset?token=⟦url:40⟧",
        "ftp://backup:⟦leet⟧@10.0.0.9/daily",
    ),
    "oauth": (
        '{"access_token": "⟦url:60⟧", "token_type": "bearer", "expires_in": 3600}',
        "grant_type=refresh_token&refresh_token=⟦url:44⟧&client_id=web",
        "callback?code=⟦url:40⟧&state=xyz",
    ),
    "json web tokens": (
        "token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.⟦url:60⟧.⟦url:43⟧",
        "id_token=eyJhbGciOiJSUzI1NiJ9.⟦url:90⟧.⟦url:86⟧",
    ),
    "keys in files": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\n⟦pem⟧\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n⟦pem⟧\n-----END RSA PRIVATE KEY-----",
        "private_key: |\n  -----BEGIN EC PRIVATE KEY-----\n  ⟦b64:64⟧\n  -----END EC PRIVATE KEY-----",
    ),
    "settings files": (
        "spring.datasource.password=⟦drawn⟧",
        '"ConnectionStrings": {"Main": "Server=db;Database=shop;User Id=sa;Password=⟦marked⟧;"}',
        "[smtp]\nhost = mail.example.org\npass = ⟦leet⟧",
        "requirepass ⟦strong⟧",
        "SECRET_KEY = 'django-insecure-⟦alnum:50⟧'",
    ),
    "shells": (
        "mysqldump -u root -p'⟦marked⟧' shop > shop.sql",
        "sshpass -p '⟦leet⟧' ssh ops@10.0.0.8",
        "curl -u ann:⟦drawn⟧ https://api.example.org/me",
        "echo '⟦pw⟧' | sudo -S apt update",
        "openssl enc -aes-256-cbc -k ⟦camel⟧ -in a -out b",
    ),
    "prompts and answers": (
        "Enter password for ann: ⟦leet⟧\nWelcome, ann.",
        "Passphrase: ⟦passphrase⟧",
        "New UNIX password: ⟦short⟧\nRetype new UNIX password: ⟦short⟧",
    ),
    "people": (
        "the password for staging is ⟦leet⟧, please don't share it",
        "you can log in as ann with ⟦pw⟧ (that's the password)",
        "my api key is ⟦alnum:32⟧ if you need it",
        "I changed the root password to ⟦camel⟧ yesterday",
        "pw: ⟦year⟧",
        "use these creds: ann / ⟦marked⟧",
    ),
    "other languages": (
        "Das Passwort lautet ⟦leet⟧.",
        "le mot de passe du wifi est ⟦drawn⟧",
        "la contraseña de la base es ⟦camel⟧",
        "пароль от сервера: ⟦marked⟧",
        "パスワードは ⟦leet⟧ です",
        "密码是⟦drawn⟧，请保密",
        "hasło: ⟦marked⟧",
        "il nuovo codice segreto è ⟦drawn⟧",
    ),
    "sql": (
        "CREATE USER app WITH PASSWORD '⟦drawn⟧';",
        "ALTER USER 'root'@'localhost' IDENTIFIED BY '⟦leet⟧';",
        "INSERT INTO users (name, password) VALUES ('ann', '⟦camel⟧');",
        "GRANT ALL ON shop.* TO 'app'@'%' IDENTIFIED BY '⟦marked⟧';",
    ),
    "mongo": (
        "mongodb+srv://app:⟦drawn⟧@cluster0.ab1cd.mongodb.net/shop",
        'db.createUser({user: "app", pwd: "⟦leet⟧", roles: ["readWrite"]})',
    ),
    "home devices": (
        'wifi:\n  ssid: "attic"\n  password: "⟦passphrase⟧"',
        'api:\n  encryption:\n    key: "⟦b64:43⟧="',
        "mqtt_password: ⟦pw⟧",
        "rtsp://admin:⟦leet⟧@192.168.1.20:554/stream1",
    ),
    "tests and fixtures": (
        "cy.get('#password').type('⟦camel⟧')",
        "await page.fill('input[name=password]', '⟦leet⟧')",
        'login("ann@example.org", password: "⟦drawn⟧")',
    ),
    "build logs": (
        "+ helm upgrade app ./chart --set db.password=⟦marked⟧",
        "Step 4/9 : ARG NPM_TOKEN=⟦alnum:36⟧",
        "-Dsonar.login=⟦hex:40⟧",
        "./gradlew publish -PossrhPassword=⟦drawn⟧",
    ),
    "monitoring": (
        "dsn = https://⟦hex:32⟧:⟦hex:32⟧@sentry.io/12345",
        "DD_API_KEY=⟦hex:32⟧",
        "NEW_RELIC_LICENSE_KEY=⟦hex:36⟧NRAL",
        "Authorization: Splunk ⟦hex:8⟧-⟦hex:4⟧-⟦hex:4⟧-⟦hex:4⟧-⟦hex:12⟧",
    ),
    "wallets": (
        "seed phrase: ⟦mnemonic⟧",
        "PRIVATE_KEY=0x⟦hex:64⟧",
    ),
    "second factors": (
        "otpauth://totp/Acme:ann?secret=⟦base32:32⟧&issuer=Acme",
        "recovery codes:\n⟦lower:5⟧-⟦lower:5⟧\n⟦lower:5⟧-⟦lower:5⟧",
        "TOTP secret: ⟦base32:16⟧",
    ),
    "mail": (
        "smtp_pass=⟦marked⟧ smtp_user=bot@example.org",
        "AUTH PLAIN ⟦basic⟧",
        "key-⟦hex:32⟧ is our Mailgun key",
    ),
    "php": (
        "define('DB_PASSWORD', '⟦drawn⟧');",
        "$mysqli = new mysqli('localhost', 'root', '⟦leet⟧', 'shop');",
        "'password' => '⟦marked⟧',",
    ),
    "go": (
        'cfg := Config{User: "ann", Password: "⟦drawn⟧"}',
        'req.SetBasicAuth("ann", "⟦leet⟧")',
    ),
    "csharp and java": (
        'var cred = new NetworkCredential("ann", "⟦camel⟧");',
        'props.setProperty("password", "⟦drawn⟧");',
        '@Value("${api.secret:⟦alnum:24⟧}")',
    ),
    "javascript": (
        "const apiKey = '⟦alnum:32⟧';",
        "app.use(session({ secret: '⟦pw⟧', resave: false }))",
        "jwt.sign(payload, '⟦strong⟧')",
    ),
    "tables": (
        "| user | password |\n|---|---|\n| ann | ⟦leet⟧ |\n| ben | ⟦drawn⟧ |",
        "user,api_key\nann,⟦alnum:32⟧",
        " id | name | secret_token\n----+------+-------------\n  1 | ann  | ⟦alnum:24⟧",
    ),
    "differences": (
        '-  "apiKey": "⟦alnum:32⟧",\n+  "apiKey": process.env.API_KEY,',
        "-PASSWORD=⟦camel⟧\n+PASSWORD=",
    ),
    "identifiers as passwords": (
        "password: ⟦year⟧_x",
        "DB_PASS=winter_⟦digits:4⟧_⟦lower:4⟧",
        "admin password = ⟦lower:6⟧_⟦digits:4⟧",
    ),
    "windows": (
        "net user ann ⟦marked⟧ /add",
        "cmdkey /add:server /user:ann /pass:⟦drawn⟧",
        "ConvertTo-SecureString '⟦camel⟧' -AsPlainText -Force",
    ),
    "directory services": (
        "ldapsearch -D cn=admin,dc=example,dc=org -w ⟦leet⟧ -b dc=example,dc=org",
        "bindpw ⟦drawn⟧",
    ),
}

_LOOK_ALIKES: tuple[str, ...] = (
    "commit ⟪hex:40⟫",
    "sha256:⟪hex:64⟫",
    '"integrity": "sha512-⟪b64:86⟫=="',
    "uuid ⟪hex:8⟫-⟪hex:4⟫-4⟪hex:3⟫-a⟪hex:3⟫-⟪hex:12⟫",
    "trace_id=⟪hex:32⟫ span_id=⟪hex:16⟫",
    "password: required, at least 12 characters",
    "def set_password(self, new_password: str) -> None:",
    'raise ValueError("password must not be empty")',
    "PASSWORD_MIN_LENGTH = 12",
    "password_reset_timeout_days = 3",
    "password=None",
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "token_count: 48213",
    "max_tokens=4096, temperature=0.2",
    "tokens used: 12,481 of 128,000",
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    "the token bucket refills at 50 per second",
    "secret_name: prod/db/password",
    "secretKeyRef:\n  name: db-credentials\n  key: password",
    "valueFrom: {secretKeyRef: {name: api-keys, key: stripe}}",
    "api_key: ${API_KEY}",
    "api_key: <your-api-key>",
    "API_KEY=changeme",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    '-H "X-Api-Key: {{ api_key }}"',
    "key: user_42_settings",
    "primary_key=True, foreign_key='users.id'",
    "KeyError: 'password'",
    "Missing required field: password",
    "assert response.json()['token'] is not None",
    "const { token } = await login(user)",
    "if (!token) return res.status(401).end()",
    "git diff ⟪hex:7⟫ ⟪hex:7⟫",
    'ETag: W/"⟪hex:27⟫"',
    "Content-MD5: ⟪b64:22⟫==",
    "X-Amz-Request-Id: ⟪upper:16⟫",
    "arn:aws:iam::⟪digits:12⟫:role/deployer",
    "AWS_REGION=eu-central-1",
    "https://example.org/docs/authentication#tokens",
    "https://user@example.org/repo.git",
    "postgresql://localhost:5432/shop",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5⟪b64:48⟫ ann@laptop",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "ghp_ tokens begin with four letters and an underscore",
    "keys that begin with sk- are OpenAI's",
    "passing: 48, pending: 2",
    "the pass rate is 98.2%",
    "bypass=cache_2024",
    "compass: N42E17",
    "passenger_count=4",
    "author: Keyes_2019",
    "monkey=capuchin_07",
    "keyboard: us-intl",
    "hotkey: ctrl+shift+p",
    "turkey_2024_population",
    "secretary: Ann Smith",
    "the secretariat moved to Room B214",
    "auth_method = scram-sha-256",
    "authorName: MaryAnn92",
    "session_timeout=3600",
    "session: 2024-11-02T10:31:22Z",
    "cookie_policy: SameSite_Lax",
    "pin: requirements==2.31.0",
    "pin the version to 4.18.2",
    "code=E4021 retry in 5s",
    "verification code expired",
    "order 48291-AX shipped with DHL JD01⟪digits:14⟫",
    "IBAN DE⟪digits:20⟫",
    "build ⟪digits:8⟫.⟪digits:2⟫ on agent-7f3",
    "i-0⟪hex:16⟫ is running",
    "container ⟪hex:12⟫ exited with code 137",
    "Elapsed: 00:04:31.⟪digits:6⟫",
    "the passphrase is asked for at start",
    "Le mot de passe est obligatoire.",
    "Das Passwort ist zu kurz.",
    "la contraseña debe tener 12 caracteres",
    "密码不能为空",
)
