"""Two more lists of secrets as people meet them, and of harmless texts that look like them.

Each was written without a look at the rules of redaction, and scored before anything was changed for it
(docs/adr/0003-redaction.md has the figures of the first run). `⟦pw⟧` in a template stands for a secret of that shape,
`⟪hex:40⟫` for a value of that shape that is none. Values come from a seed: nothing in this file is a secret.
"""

import base64
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "BlindSecret",
    "fill_look_alikes",
    "fill_secrets",
    "fill_template",
    "make_blind_secrets",
    "make_last_look_alikes",
    "make_last_secrets",
    "make_look_alikes",
]

_ALNUM = string.ascii_letters + string.digits
_ALPHABETS = {
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "alnum": _ALNUM,
    "upper": string.ascii_uppercase + string.digits,
    "lower": string.ascii_lowercase + string.digits,
    "b64": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "digits": string.digits,
    "base32": string.ascii_uppercase + "234567",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "base58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
_WORDS = (
    "otter", "Quartz", "lemon", "Saturn", "copper", "Meadow", "pixel", "Tundra", "walnut", "Echo", "saffron", "Bridge",
)  # fmt: skip
_MNEMONIC = (
    "abandon", "ribbon", "orchard", "velvet", "puzzle", "kingdom", "lunar", "giraffe", "hockey", "oxygen", "salmon", "tunnel",
)  # fmt: skip
_SHAPE = re.compile(r"⟦([\w:]+)⟧|⟪([\w:]+)⟫")


class BlindSecret(NamedTuple):
    """A text with secrets in it."""

    kind: str
    text: str
    secrets: tuple[str, ...]


def _make_leet(rng: random.Random) -> str:
    word = rng.choice(_WORDS).title().replace("a", "@", 1).replace("o", "0").replace("e", "3", 1)
    return f"{word}{rng.choice('!#$')}{rng.randrange(10, 999)}"


_MAKES: dict[str, Callable[[random.Random], str]] = {
    "leet": _make_leet,
    "year": lambda rng: f"{rng.choice(_WORDS).title()}{rng.randrange(1990, 2030)}",
    "passphrase": lambda rng: "-".join(rng.sample(_MNEMONIC, 4)),
    "drawn": lambda rng: "".join((*rng.choices(_ALNUM, k=10), rng.choice(string.digits), rng.choice("Zq"))),
    # Nine to sixteen characters, as a manager of passwords or a person with a rule in mind makes them.
    "marked": lambda rng: "".join(
        (*rng.choices(_ALNUM, k=rng.randrange(6, 12)), rng.choice("!$^&*"), *rng.choices(_ALNUM, k=2), "7")
    ),
    "camel": lambda rng: (
        f"{rng.choice(_WORDS).title()}{rng.choice(_WORDS).title()}{rng.randrange(10, 9_999)}{rng.choice('!$%')}"
    ),
    "front": lambda rng: (
        f"{rng.randrange(10, 9_999)}{rng.choice('!-_#')}{rng.choice(_WORDS)}{rng.choice(_WORDS).title()}"
    ),
}


def _make(shape: str, rng: random.Random) -> str:
    """Returns a value of a shape: `pw`, `strong`, `mnemonic`, `basic`, or an alphabet and a length."""
    if shape == "pw":
        return f"{rng.choice(_WORDS)}{rng.choice('-_.!#')}{rng.choice(_WORDS)}{rng.randrange(10, 9_999)}"
    if shape == "short":
        return f"{rng.choice(_WORDS)}{rng.randrange(10, 999)}{rng.choice('!?*')}"
    if shape == "strong":
        return "".join(rng.choices(_ALNUM + "!#%*+-_", k=18)) + str(rng.randrange(10))
    if shape == "mnemonic":
        return " ".join(rng.sample(_MNEMONIC, 12))
    if shape == "basic":
        return base64.b64encode(f"svc:{_make('pw', rng)}".encode()).decode().rstrip("=")
    if shape in _MAKES:
        return _MAKES[shape](rng)
    if shape == "pem":
        body = "".join(rng.choices(_ALPHABETS["b64"], k=64 * 3))
        return "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    alphabet, _, length = shape.partition(":")
    return "".join(rng.choices(_ALPHABETS[alphabet], k=int(length)))


def fill_template(template: str, rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """Returns the text of a template, and the secrets in it."""
    secrets: list[str] = []

    def put(found: re.Match[str]) -> str:
        value = _make(found[1] or found[2], rng)
        if found[1]:
            secrets.append(value)
        return value

    return _SHAPE.sub(put, template), tuple(secrets)


def fill_secrets(templates: Mapping[str, Sequence[str]], seed: int) -> list[BlindSecret]:
    """Returns the text of each template, by kind, with the secrets in it."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, some in templates.items()
        for template in some
    ]


def fill_look_alikes(templates: Sequence[str], seed: int) -> list[str]:
    """Returns the text of each template, which has no secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in templates]


def make_blind_secrets(seed: int) -> list[BlindSecret]:
    """Returns 143 texts of 40 kinds."""
    return fill_secrets(_SECRETS, seed)


def make_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    return fill_look_alikes(_LOOK_ALIKES, seed)


def make_last_secrets(seed: int) -> list[BlindSecret]:
    """Returns 60 texts of 19 kinds: the list that was written after what the first one showed had been mended."""
    return fill_secrets(_LAST_SECRETS, seed)


def make_last_look_alikes(seed: int) -> list[str]:
    """Returns 40 texts without a secret."""
    return fill_look_alikes(_LAST_LOOK_ALIKES, seed)


_SECRETS: dict[str, tuple[str, ...]] = {
    "Go": (
        'key := []byte("⟦alnum:32⟧")',
        'const apiSecret = "⟦alnum:40⟧"',
        'os.Setenv("SMTP_PASSWORD", "⟦pw⟧")',
        'cfg.Password = "⟦pw⟧"',
    ),
    "Rust": (
        'let api_key: &str = "⟦alnum:40⟧";',
        'static SIGNING_SECRET: &[u8] = b"⟦alnum:32⟧";',
        'PgConnectOptions::new().username("app").password("⟦pw⟧")',
    ),
    "Kotlin and Swift": (
        'private const val CLIENT_SECRET: String = "⟦alnum:36⟧"',
        'let authToken: String = "⟦hex:40⟧"',
        'val dbPassword by lazy { "⟦pw⟧" }',
    ),
    "Java": (
        "spring.datasource.password=⟦pw⟧",
        "jwt.secret=\\\n    ⟦hex:48⟧",
        'private static final String ENCRYPTION_KEY = "⟦alnum:32⟧";',
        "java -Djavax.net.ssl.keyStorePassword=⟦pw⟧ -jar app.jar",
    ),
    "C": (
        '#define WIFI_PASSWORD "⟦pw⟧"',
        'static const char *api_token = "⟦alnum:36⟧";',
        'WiFi.begin("home", "⟦pw⟧");  // ssid, password',
    ),
    "PowerShell": (
        '$env:GRAPH_CLIENT_SECRET = "⟦strong⟧"',
        'ConvertTo-SecureString "⟦pw⟧" -AsPlainText -Force',
        "$AdminPassword = '⟦pw⟧'",
    ),
    "PHP": (
        "define('DB_PASSWORD', '⟦pw⟧');",
        "    'password' => '⟦pw⟧',",
        "$cfg['Servers'][1]['password'] = '⟦strong⟧';",
    ),
    "Ruby and Elixir": (
        'config.secret_key_base = "⟦hex:128⟧"',
        ':api_key => "⟦alnum:32⟧"',
        'config :shop, ShopWeb.Endpoint, secret_key_base: "⟦url:64⟧"',
    ),
    "Python": (
        'client = Redis(host="cache.internal", port=6379, password="⟦pw⟧")',
        'os.environ["BILLING_API_KEY"] = "⟦alnum:32⟧"',
        'requests.get(url, auth=("svc-build", "⟦pw⟧"))',
        "SECRET_KEY = 'django-insecure-⟦lower:50⟧'",
    ),
    "JavaScript": (
        "const apiKey = `⟦alnum:39⟧`;",
        "process.env.JWT_SECRET = '⟦alnum:48⟧'",
        "fetch(url, { headers: { 'x-api-key': '⟦alnum:40⟧' } })",
    ),
    "Terraform": (
        'variable "db_password" {\n  type    = string\n  default = "⟦pw⟧"\n}',
        "export TF_VAR_admin_password=⟦pw⟧",
        'resource "aws_db_instance" "main" {\n  username = "app"\n  password = "⟦strong⟧"\n}',
    ),
    "Kubernetes and Helm": (
        "helm upgrade pg bitnami/postgresql --set auth.postgresPassword=⟦pw⟧ --wait",
        "kind: Secret\nstringData:\n  password: ⟦pw⟧",
        '        - name: DB_PASS\n          value: "⟦pw⟧"',
        "kubectl create secret generic api --from-literal=token=⟦alnum:40⟧",
    ),
    "Ansible": (
        "ansible_become_pass: ⟦pw⟧",
        "web1 ansible_host=10.0.0.4 ansible_ssh_pass=⟦pw⟧",
        'ansible-playbook site.yml -e "vault_password=⟦pw⟧"',
    ),
    "Docker": (
        "docker login -u ci -p ⟦pw⟧ registry.example.com",
        "ENV MYSQL_ROOT_PASSWORD=⟦pw⟧",
        "docker build --build-arg NPM_TOKEN=⟦alnum:36⟧ .",
    ),
    "one-time codes": (
        "Hi Jo, your code is ⟦digits:6⟧. Do not share it with anybody.",
        "Your verification code: ⟦digits:6⟧ (expires in 10 minutes)",
        "G-⟦digits:6⟧ is your Google verification code.",
        "TAN: ⟦digits:6⟧",
        "enter OTP ⟦digits:6⟧ to confirm the transfer",
    ),
    "recovery codes": (
        "Save these recovery codes:\n⟦lower:5⟧-⟦lower:5⟧\n⟦lower:5⟧-⟦lower:5⟧\n⟦lower:5⟧-⟦lower:5⟧",
        "backup code: ⟦digits:8⟧",
    ),
    "PINs": (
        "The PIN of the safe is ⟦digits:6⟧.",
        "PUK: ⟦digits:8⟧",
        "PIN-Code: ⟦digits:4⟧",
    ),
    "people in chat": (
        "use ⟦pw⟧ as the password for staging",
        "creds are admin / ⟦pw⟧",
        "user: root, pass: ⟦short⟧",
        "the wifi password is ⟦short⟧, see you at 9",
        "I changed the admin password to ⟦pw⟧ this morning",
    ),
    "people in other languages": (
        "Das Kennwort lautet ⟦pw⟧.",
        "le mot de passe est ⟦pw⟧",
        "wachtwoord: ⟦pw⟧",
        "hasło do bazy: ⟦pw⟧",
        "a senha é ⟦pw⟧",
    ),
    "people in Asia": (
        "パスワードは⟦pw⟧です",
        "비밀번호: ⟦pw⟧",
        "密码：⟦pw⟧",
        "口令是 ⟦pw⟧",
    ),
    "AWS": (
        "aws_access_key_id = AKIA⟦base32:16⟧\naws_secret_access_key = ⟦b64:40⟧",
        'export AWS_SESSION_TOKEN="⟦b64:180⟧"',
        "Found key ASIA⟦base32:16⟧ in the log",
    ),
    "Google": (
        "maps?key=AIza⟦url:35⟧",
        "access token ya29.⟦url:120⟧",
        '"client_secret": "GOCSPX-⟦url:28⟧"',
    ),
    "Azure": (
        "DefaultEndpointsProtocol=https;AccountName=logs;AccountKey=⟦b64:86⟧==;EndpointSuffix=core.windows.net",
        "https://logs.blob.core.windows.net/c/f.txt?sv=2023-01-03&se=2026-01-01&sr=b&sp=r&sig=⟦alnum:43⟧%3D",
        "AZURE_CLIENT_SECRET=⟦alnum:3⟧8Q~⟦url:34⟧",
        "Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=⟦b64:43⟧=",
    ),
    "code hosts": (
        "git clone https://oauth2:⟦alnum:24⟧@gitlab.example.com/team/app.git",
        "remote: ghp_⟦alnum:36⟧",
        "CI_JOB_TOKEN=glcbt-64_⟦url:20⟧",
        "github_pat_⟦alnum:22⟧_⟦alnum:59⟧",
    ),
    "services": (
        "SLACK: xoxb-⟦digits:12⟧-⟦digits:12⟧-⟦alnum:24⟧",
        "stripe.api_key = 'sk_live_⟦alnum:24⟧'",
        "SG.⟦url:22⟧.⟦url:43⟧",
        "mailgun key-⟦hex:32⟧",
        "doctl auth init -t dop_v1_⟦hex:64⟧",
        "shpat_⟦hex:32⟧",
    ),
    "packages and tools": (
        "//npm.example.com/:_authToken=npm_⟦alnum:36⟧",
        "lin_api_⟦alnum:40⟧",
        "PMAK-⟦hex:24⟧-⟦hex:34⟧",
        "hvs.⟦url:90⟧",
    ),
    "models": (
        "sk-ant-api03-⟦url:93⟧AA",
        "OPENAI_API_KEY=sk-proj-⟦url:120⟧",
        "hf_⟦alnum:34⟧",
        "gsk_⟦alnum:52⟧",
    ),
    "addresses": (
        "postgres://app:⟦pw⟧@db.internal:5432/app",
        "redis://:⟦pw⟧@cache:6379/0",
        "amqps://worker:⟦strong⟧@mq.example.com/vhost",
        "https://⟦hex:32⟧@o450.ingest.sentry.io/450",
        "https://hooks.slack.com/services/T⟪upper:9⟫/B⟪upper:9⟫/⟦alnum:24⟧",
    ),
    "queries": (
        "GET /v1/me?access_token=⟦alnum:64⟧ HTTP/1.1",
        "https://app.example.com/reset-password?token=⟦url:43⟧",
        "https://s3.example.com/b/k?X-Amz-Credential=⟪upper:20⟫&X-Amz-Signature=⟦hex:64⟧",
    ),
    "headers": (
        "Authorization: Basic ⟦basic⟧",
        "PRIVATE-TOKEN: ⟦alnum:20⟧",
        "Cookie: theme=dark; sessionid=⟦lower:32⟧",
        "X-Vault-Token: s.⟦alnum:24⟧",
    ),
    "tokens with parts": (
        "eyJhbGciOiJIUzI1NiJ9.eyJ⟦url:60⟧.⟦url:43⟧",
        "id_token=eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJ⟦url:80⟧.⟦url:86⟧",
    ),
    "private keys": (
        "-----BEGIN RSA PRIVATE KEY-----\n⟦pem⟧\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n⟦pem⟧\n-----END PGP PRIVATE KEY BLOCK-----",
        "AGE-SECRET-KEY-1⟦bech:58⟧",
    ),
    "password hashes": (
        "root:$6$⟪alnum:12⟫$⟦alnum:86⟧:19700:0:99999:7:::",
        "admin:$2y$10$⟦alnum:53⟧",
        "$argon2id$v=19$m=65536,t=3,p=4$⟪b64:22⟫$⟦b64:43⟧",
    ),
    "files of passwords": (
        "machine git.example.com login ci password ⟦pw⟧",
        "db.internal:5432:app:app:⟦pw⟧",
        "[client]\nuser=backup\npassword=⟦pw⟧",
    ),
    "commands": (
        "sshpass -p '⟦pw⟧' ssh deploy@web1",
        "echo '⟦pw⟧' | sudo -S systemctl restart nginx",
        "PGPASSWORD=⟦pw⟧ psql -h db app",
        "mysql -uroot -p⟦pw⟧ shop",
        "curl -u ci:⟦pw⟧ https://nexus.example.com/",
    ),
    "more commands": (
        "redis-cli -h cache -a ⟦pw⟧ ping",
        "ldapsearch -x -D cn=admin,dc=example -w ⟦pw⟧ -b dc=example",
        "openssl rsa -in k.pem -passin pass:⟦pw⟧",
        "smbclient //nas/share -U backup%⟦pw⟧",
    ),
    "SQL": (
        "CREATE USER app WITH PASSWORD '⟦pw⟧';",
        "ALTER USER 'root'@'localhost' IDENTIFIED BY '⟦pw⟧';",
        "GRANT ALL ON shop.* TO 'app'@'%' IDENTIFIED WITH mysql_native_password BY '⟦pw⟧';",
    ),
    "XML": (
        "<server><id>central</id><username>ci</username><password>⟦pw⟧</password></server>",
        '<add key="ApiSecret" value="⟦alnum:32⟧" />',
        'connectionString="Server=db;Database=app;User Id=sa;Password=⟦pw⟧;"',
    ),
    "tables": (
        "| user | password | role |\n|---|---|---|\n| ann | ⟦pw⟧ | admin |\n| ben | ⟦pw⟧ | reader |",
        "username,password,email\nann,⟦pw⟧,ann@example.com",
        " id | login |    api_key     \n----+-------+----------------\n  1 | ann   | ⟦alnum:32⟧",
    ),
    "wallets, tunnels and second factors": (
        "seed phrase: ⟦mnemonic⟧",
        "PrivateKey = ⟦b64:43⟧=",
        "otpauth://totp/Shop:ann@example.com?secret=⟦base32:32⟧&issuer=Shop",
        "Can't scan it? Enter this setup key: ⟦base32:32⟧",
    ),
}  # fmt: skip

_LOOK_ALIKES: tuple[str, ...] = (
    # Numbers that are called codes
    "the exit code is 137",
    "Error code: 482913",
    "ZIP code is 94107",
    "HTTP status code is 404 for all of them",
    "your order number is 482913",
    "The country code is 49, the area code 221.",
    "line 482913 of code is never reached",
    "the code is 300 lines long",
    "barcode: 4006381333931",
    "pin 13 is the built-in LED, PIN 4 the relay",
    # Identifiers and digests
    "commit ⟪hex:40⟫",
    "Merge ⟪hex:7⟫ into ⟪hex:8⟫",
    "sha256:⟪hex:64⟫",
    '"integrity": "sha512-⟪b64:86⟫=="',
    "request-id: ⟪hex:8⟫-⟪hex:4⟫-4⟪hex:3⟫-a⟪hex:3⟫-⟪hex:12⟫",
    "traceparent: 00-⟪hex:32⟫-⟪hex:16⟫-01",
    'ETag: "⟪hex:32⟫"',
    "md5(backup.tar) = ⟪hex:32⟫",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI⟪b64:43⟫ ann@laptop",
    "SHA256:⟪b64:43⟫ ann@laptop (ED25519)",
    "-----BEGIN CERTIFICATE-----\n⟪pem⟫\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n⟪pem⟫\n-----END PUBLIC KEY-----",
    "data:image/png;base64,iVBORw0KGgo⟪b64:120⟫",
    "arn:aws:iam::123456789012:role/deploy-runner",
    "i-⟪hex:17⟫ is running in eu-west-1a",
    "cus_⟪alnum:14⟫ has two open invoices",
    "chatcmpl-⟪alnum:29⟫",
    "toolu_01⟪alnum:22⟫",
    "call_⟪alnum:24⟫",
    "build ⟪lower:10⟫ of image registry.example.com/app:⟪hex:12⟫",
    "pk_live_⟪alnum:24⟫",  # publishable by its name
    # Counts and settings with telling words
    "max_tokens=4096, prompt_tokens: 18230",
    '"completion_tokens": 512, "total_tokens": 48291',
    "tokens per second: 48291.55",
    "token budget is 200000",
    "password_min_length = 12",
    "session_timeout: 3600",
    "secretName: db-credentials",
    "passwordSecretRef:\n  name: db-credentials\n  key: password",
    "API_KEY_HEADER = 'X-Api-Key'",
    "primary_key=True, foreign_key='users.id'",
    "key: images/2024/08/cat-on-sofa.png",
    "sort_key=created_at",
    "keyboard: us-intl, keymap=de-latin1",
    "PWD=/srv/app/current",
    "pwd=/home/ann/src/penstock",
    "private-key-path: /etc/ssl/private/server.key",
    "password_file=/run/secrets/db_password",
    # Places for a secret
    "password: <your password>",
    "API_KEY=your-api-key-here",
    "DB_PASSWORD=${DB_PASSWORD:?missing}",
    "token: {{ .Values.auth.token }}",
    'api_key = os.environ["BILLING_API_KEY"]',
    "const token = process.env.GITHUB_TOKEN;",
    "password = getpass.getpass('Password: ')",
    "Authorization: Bearer $TOKEN",
    'curl -u "$USER:$PASS" https://nexus.example.com/',
    "password=********",
    "secret: [REDACTED]",
    "apiKey: null",
    "export AWS_SECRET_ACCESS_KEY=$(pass show aws/prod)",
    "xoxb-your-token-here",
    # Code
    "if password != confirmation:",
    "def hash_password(password: str, rounds: int = 12) -> bytes:",
    "let token = await getAccessToken(session.user.id)",
    "token := parser.Next()",
    "key := strings.ToLower(header.Name)",
    '"password": {"type": "string", "minLength": 12}',
    '<input type="password" name="password" autocomplete="current-password">',
    "assert_eq!(next_token, Token::Identifier);",
    "secret = derive(master, salt)",
    "#define PASSWORD_MAX 64",
    "$password = Read-Host -AsSecureString",
    # Prose
    "The password is stored in the vault and rotated every 90 days.",
    "Passwords must be at least 12 characters long and contain a digit.",
    "Your verification code expires in 10 minutes.",
    "pass: 482, fail: 0, skipped: 13",
    "The secret of good bread is patience.",
    "Das Passwort wird beim ersten Anmelden geändert.",
    "El token caduca en 3600 segundos.",
)

_LAST_SECRETS: dict[str, tuple[str, ...]] = {
    "messages from banks": (
        "<#> 4 digits? No: your one-time password is ⟦digits:6⟧, valid for 5 min",
        "Use ⟦digits:6⟧ as your Acme login code",
        "Ihre smsTAN lautet ⟦digits:6⟧",
    ),
    "tickets": (
        "Customer says: username jdoe, password ⟦pw⟧, cannot log in since Monday",
        "temp password for the new laptop: ⟦short⟧ (change on first login)",
        "Root pw on the switch is still ⟦pw⟧",
    ),
    "environment files": (
        "REDIS_PASSWORD='⟦strong⟧'",
        "SESSION_SECRET=⟦hex:64⟧",
        "NEXTAUTH_SECRET=⟦b64:43⟧=",
        "MAIL_PASS=⟦lower:16⟧",
    ),
    "pipelines": (
        "  env:\n    SONAR_TOKEN: ⟦hex:40⟧",
        "variables:\n  DEPLOY_PASSWORD: '⟦pw⟧'",
        "withCredentials([string(credentialsId: 'x', variable: 'TOKEN')]) { sh 'curl -H \"Authorization: token ⟦hex:40⟧\" u' }",
    ),
    "systemd": (
        'Environment="DB_PASSWORD=⟦pw⟧"',
        "ExecStart=/usr/bin/app --db-password=⟦pw⟧ --port 80",
        "LoadCredential=x\nEnvironment=API_TOKEN=⟦alnum:40⟧",
    ),
    "web servers": (
        'proxy_set_header Authorization "Basic ⟦basic⟧";',
        "admin:{SHA}⟦b64:27⟧=",
        "requirepass ⟦strong⟧",
    ),
    "C# and VB": (
        'public const string ApiKey = "⟦alnum:32⟧";',
        'var cred = new NetworkCredential("svc", "⟦pw⟧");',
        'services.AddJwt(o => o.Secret = "⟦alnum:48⟧");',
    ),
    "Scala and Clojure": (
        'val password: String = "⟦pw⟧"',
        '{:db {:user "app" :password "⟦pw⟧"}}',
        'db.default.password = "⟦pw⟧"',
    ),
    "R, Lua and Perl": (
        'password <- "⟦pw⟧"',
        'local secret = "⟦alnum:32⟧"',
        "my $password = '⟦pw⟧';",
    ),
    "shell": (
        "read -r PASS <<< '⟦pw⟧'; export DB_PASS=⟦pw⟧",
        "htpasswd -b .htpasswd ann ⟦pw⟧",
        "mysqldump --user=root --password=⟦pw⟧ shop > d.sql",
        "vault login ⟦alnum:26⟧",
    ),
    "HTTP bodies": (
        "grant_type=password&username=ann&password=⟦pw⟧&scope=all",
        '{"email":"ann@example.com","password":"⟦pw⟧"}',
        '{"refresh_token":"⟦url:64⟧","expires_in":3600}',
        "client_id=web&client_secret=⟦alnum:32⟧",
    ),
    "object stores": (
        "mc alias set m http://minio:9000 ⟦upper:20⟧ ⟦alnum:40⟧",
        "s3cmd --access_key=⟪upper:20⟫ --secret_key=⟦alnum:40⟧ ls",
        "rclone config: secret_access_key = ⟦alnum:40⟧",
    ),
    "Windows": (
        "cmdkey /add:srv /user:ann /pass:⟦pw⟧",
        "net user ann ⟦pw⟧ /add",
        "New-LocalUser ann -Password (ConvertTo-SecureString '⟦pw⟧' -AsPlainText -Force)",
    ),
    "mail and chat servers": (
        "smtp_sasl_password_maps: [smtp.example.com]:587 ann:⟦pw⟧",
        "IMAP LOGIN ann@example.com ⟦pw⟧",
        "IRC: /msg NickServ IDENTIFY ⟦pw⟧",
    ),
    "more languages": (
        "Parola veritabanı için: ⟦pw⟧",
        "Mật khẩu: ⟦pw⟧",
        "пароль от сервера: ⟦pw⟧",
    ),
    "routers and Wi-Fi": (
        'network={\n  ssid="home"\n  psk="⟦pw⟧"\n}',
        "wpa_passphrase=⟦pw⟧",
        "enable secret 5 ⟦alnum:30⟧",
    ),
    "backups": (
        "export RESTIC_PASSWORD=⟦pw⟧",
        "BORG_PASSPHRASE='⟦pw⟧' borg create r::a .",
        "7z a -p⟦pw⟧ x.7z d/",
    ),
    "monitoring": (
        "Sending webhook with X-Hub-Secret: ⟦hex:40⟧",
        "DD_API_KEY=⟦hex:32⟧",
        "influx -token ⟦url:86⟧==",
    ),
    "notebooks": (
        'openai.api_key = "sk-⟦alnum:48⟧"',
        "%env HF_TOKEN=hf_⟦alnum:34⟧",
        "!wandb login ⟦hex:40⟧",
    ),
}  # fmt: skip

_LAST_LOOK_ALIKES: tuple[str, ...] = (
    "Use 4 spaces as your indentation code style",
    "Your code is at 1234 Main Street",
    "your code is 2048 lines long and slow",
    "The build code was 20240816.3",
    "access code path: /v2/items",
    "PIN: see the card",
    "TAN-Verfahren: pushTAN oder chipTAN",
    "OTP 27 and Elixir 1.17 are supported",
    "GPIO PIN = 17",
    "confirmation code will be sent to 0171 2345678",
    "Error code 0x80070005 at 14:32",
    "npm ERR! code E404",
    "the recovery codes are in the vault",
    "Backup codes:\nnone yet",
    "password: see 1Password",
    "password reset link was sent to ann@example.com",
    "Password (again):",
    "the password field of login_form2024 is empty",
    "wrong password for user ann_smith",
    "use argon2id as the password hash",
    "credentials are read from ~/.aws/credentials",
    "creds are in the vault / ask Ben",
    "passed: 12/14",
    "pass=true fail=false",
    "user: ann, pass: yes",
    "key := []byte(header)",
    'data := []byte("hello world, this is plain text")',
    "secret: projects/acme/secrets/db/versions/3",
    "token_type=bearer&expires_in=3600",
    "csrf_token: {{ csrf_token() }}",
    'password = config.get("db", "password")',
    'password := os.Getenv("DB_PASSWORD")',
    'let secret = Secret::from_env("API_SECRET")?;',
    "val token = tokens[index + 1]",
    "-p 8080:80 -v /data:/data",
    "git commit -S ⟪HEX:16⟫",
    "index ⟪hex:7⟫..⟪hex:7⟫ 100644",
    "model: gpt-4.1-2025-04-14, seed 482913",
    "user_id=⟪digits:8⟫&page=2",
    "X-Request-Id: ⟪alnum:22⟫",
)
