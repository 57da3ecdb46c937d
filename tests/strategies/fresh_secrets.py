"""145 secrets of 40 kinds as people meet them, and 80 harmless texts that look like secrets.

Written without a look at the rules of redaction, so that the share it finds says something about secrets that nobody
has thought of. Values come from a seed: nothing in this file is a secret, or looks like one to a scanner.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_BASE64 = _ALNUM + "+/"
_URL_SAFE = _ALNUM + "-_"
_WORDS = [
    "Winter",
    "Harbour",
    "Maple",
    "Falcon",
    "Granite",
    "Orchid",
    "Pepper",
    "Lantern",
    "Cobalt",
    "Thunder",
    "Velvet",
    "Juniper",
]
_HOSTS = ["db.corp.example", "pg-main.internal", "10.20.0.7", "cache.svc.example", "mail.example.org"]


@dataclass(frozen=True, slots=True)
class FreshSecret:
    """A text with a secret in it."""

    kind: str
    text: str
    secret: str
    """What must not be read in the text any more."""


class Values:
    """Makes values from a seed: the same seed, the same values."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """Return random characters, digits and letters among them where the alphabet has both."""
        while True:
            value = "".join(self.draw.choice(alphabet) for _ in range(length))
            mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
            if mixed or length < 8 or not (set(alphabet) & set("abc") and set(alphabet) & set(string.digits)):
                return value

    def alnum(self, length: int) -> str:
        """Return letters and digits."""
        return self.of(_ALNUM, length)

    def hex(self, length: int) -> str:
        """Return hexadecimal digits."""
        return self.of(_HEX, length)

    def base64(self, length: int) -> str:
        """Return the base64 of random bytes."""
        return base64.b64encode(self.draw.randbytes(length)).decode()

    def url_safe(self, length: int) -> str:
        """Return base64url, which begins and ends with a letter or digit."""
        return self.alnum(1) + self.of(_URL_SAFE, length - 2) + self.alnum(1)

    def uuid(self) -> str:
        """Return a UUID of version 4."""
        return f"{self.hex(8)}-{self.hex(4)}-4{self.hex(3)}-a{self.hex(3)}-{self.hex(12)}"

    def word(self) -> str:
        """Return a capitalised English word."""
        return self.draw.choice(_WORDS)

    def host(self) -> str:
        """Return a host."""
        return self.draw.choice(_HOSTS)

    def password(self) -> str:
        """Return a password of a person: word and year, words with signs, or random."""
        year, number = self.draw.randint(2015, 2027), self.draw.randint(10, 99)
        return self.draw.choice(
            (
                f"{self.word()}_{year}",
                f"{self.word()}{year}!",
                f"{self.word().lower()}-{self.word().lower()}-{number}",
                self.alnum(self.draw.randint(10, 20)),
                f"{self.alnum(5)}#{self.alnum(4)}!{number}",
            )
        )

    def plain_password(self) -> str:
        """Return a password of letters and digits, for places where signs would be escaped."""
        return self.draw.choice((f"{self.word()}{self.draw.randint(2015, 2027)}", self.alnum(14)))


_Maker = Callable[[Values], Iterator[tuple[str, str]]]
_MAKERS: dict[str, _Maker] = {}


def _kind(name: str) -> Callable[[_Maker], _Maker]:
    def register(maker: _Maker) -> _Maker:
        _MAKERS[name] = maker
        return maker

    return register


def make_fresh_secrets(seed: int) -> list[FreshSecret]:
    """Return the 145 texts with a secret each."""
    values = Values(seed)
    return [
        FreshSecret(kind, text, secret) for kind, maker in _MAKERS.items() for text, secret in maker(values)
    ]


@_kind("aws")
def _aws(v: Values) -> Iterator[tuple[str, str]]:
    access, secret = "AKIA" + v.of(string.ascii_uppercase + "234567", 16), v.of(_BASE64, 40)
    yield (
        f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\nregion = eu-west-1",
        secret,
    )
    yield f"the role printed {access} when I asked who I am", access
    secret = v.of(_BASE64, 40)
    yield f'client = boto3.client("s3", aws_secret_access_key="{secret}")', secret
    token = "FwoGZXIvYXdzE" + v.of(_BASE64, 180)
    yield (
        f'{{"AccessKeyId": "ASIA…", "SessionToken": "{token}", "Expiration": "2026-01-02T03:04:05Z"}}',
        token,
    )


@_kind("github")
def _github(v: Values) -> Iterator[tuple[str, str]]:
    token = "ghp_" + v.alnum(36)
    yield f"remote: https://x-access-token:{token}@github.com/acme/site.git (push)", token
    token = "github_pat_" + v.alnum(22) + "_" + v.alnum(59)
    yield f"I put {token} into the secrets of the workflow", token
    token = "gho_" + v.alnum(36)
    yield f"gh auth token\n{token}\n", token


@_kind("gitlab")
def _gitlab(v: Values) -> Iterator[tuple[str, str]]:
    token = "glpat-" + v.url_safe(20)
    yield f"git clone https://oauth2:{token}@gitlab.example.com/team/app.git", token
    token = "glrt-" + v.url_safe(20)
    yield f"gitlab-runner register --token {token} --url https://gitlab.example.com", token
    token = v.hex(8) + v.url_safe(12)
    yield f"PRIVATE-TOKEN: {token}", token


@_kind("slack")
def _slack(v: Values) -> Iterator[tuple[str, str]]:
    token = "xoxb-" + v.of("123456789", 12) + "-" + v.of("123456789", 13) + "-" + v.alnum(24)
    yield f"slack_sdk.WebClient({token!r})", token
    path = v.alnum(24)
    yield (
        f"POST https://hooks.slack.com/services/T{v.of('ABC123', 8)}/B{v.of('ABC123', 8)}/{path} -> 200",
        path,
    )
    secret = v.hex(32)
    yield f"SLACK_SIGNING_SECRET={secret}", secret


@_kind("discord")
def _discord(v: Values) -> Iterator[tuple[str, str]]:
    def bot() -> str:
        user = base64.b64encode(str(v.draw.randint(10**17, 10**18 - 1)).encode()).decode().rstrip("=")
        return f"{user}.{v.url_safe(6)}.{v.url_safe(38)}"

    token = bot()
    yield f"client.run('{token}')", token
    token = bot()
    yield f"The bot logs in as {token} and then waits.", token
    hook = v.url_safe(68)
    yield f"https://discord.com/api/webhooks/{v.of('123456789', 18)}/{hook}", hook


@_kind("telegram")
def _telegram(v: Values) -> Iterator[tuple[str, str]]:
    token = v.of("123456789", 10) + ":AA" + v.url_safe(33)
    yield f"GET https://api.telegram.org/bot{token}/getUpdates?offset=12 200", token
    token = v.of("123456789", 10) + ":AA" + v.url_safe(33)
    yield f"Use this token to access the HTTP API:\n{token}\nKeep your token secure", token


@_kind("stripe")
def _stripe(v: Values) -> Iterator[tuple[str, str]]:
    for prefix, length in (("sk_live_", 24), ("rk_live_", 32), ("whsec_", 32)):
        value = prefix + v.alnum(length)
        yield f"stripe listen … {value}", value


@_kind("model providers")
def _models(v: Values) -> Iterator[tuple[str, str]]:
    token = "sk-" + v.alnum(48)
    yield f"openai.api_key = '{token}'", token
    token = "sk-proj-" + v.url_safe(120)
    yield f"Incorrect API key provided: {token}. You can find your key in the dashboard.", token
    token = "sk-ant-api03-" + v.url_safe(93) + "AA"
    yield f"x-api-key: {token}", token
    token = "hf_" + v.of(string.ascii_letters, 34)
    yield f"huggingface-cli login --token {token}", token
    token = "gsk_" + v.alnum(52)
    yield f"groq = Groq(api_key={token!r})", token
    token = "r8_" + v.alnum(37)
    yield f"export REPLICATE_API_TOKEN={token}", token


@_kind("google")
def _google(v: Values) -> Iterator[tuple[str, str]]:
    key = "AIza" + v.url_safe(35)
    yield f"https://maps.googleapis.com/maps/api/js?key={key}&libraries=places", key
    secret = "GOCSPX-" + v.url_safe(28)
    yield json.dumps({"web": {"client_id": "12.apps.googleusercontent.com", "client_secret": secret}}), secret
    token = "ya29." + v.url_safe(150)
    yield f"curl -H 'Authorization: Bearer {token}' https://www.googleapis.com/drive/v3/files", token
    token = "1//0" + v.url_safe(60)
    yield f'"refresh_token": "{token}"', token


@_kind("service account")
def _service_account(v: Values) -> Iterator[tuple[str, str]]:
    lines = [v.of(_BASE64, 64) for _ in range(6)]
    pem = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(lines) + "\n-----END PRIVATE KEY-----\n"
    yield (
        json.dumps({"type": "service_account", "private_key_id": v.hex(40), "private_key": pem}, indent=2),
        lines[3],
    )
    yield repr(pem), lines[4]


@_kind("azure")
def _azure(v: Values) -> Iterator[tuple[str, str]]:
    key = v.base64(64)
    yield (
        f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={key};EndpointSuffix=core.windows.net",
        key,
    )
    signature = v.base64(32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    yield (
        f"https://acme.blob.core.windows.net/c/f.csv?sv=2024-01-01&se=2026-01-01&sr=b&sp=r&sig={signature}",
        signature,
    )
    secret = v.alnum(3) + "8Q~" + v.url_safe(34)
    yield f"az login --service-principal -u {v.uuid()} -p {secret} --tenant {v.uuid()}", secret
    key = v.base64(32)
    yield f"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={key}", key


@_kind("package registries")
def _registries(v: Values) -> Iterator[tuple[str, str]]:
    token = "npm_" + v.alnum(36)
    yield f"//npm.example.com/:_authToken={token}", token
    token = "pypi-AgEIcHlwaS5vcmc" + v.url_safe(120)
    yield f"[pypi]\nusername = __token__\npassword = {token}", token
    token = v.base64(18)
    yield f"//npm.corp.example/:_password={token}\n//npm.corp.example/:username=ci", token
    token = v.hex(48)
    yield f":rubygems_api_key: rubygems_{token}", token


@_kind("docker")
def _docker(v: Values) -> Iterator[tuple[str, str]]:
    auth = base64.b64encode(f"ci:{v.alnum(16)}".encode()).decode()
    config = json.dumps({"auths": {"registry.example.com": {"auth": auth}}})
    yield config, auth
    data = base64.b64encode(config.encode()).decode()
    yield (
        f"apiVersion: v1\nkind: Secret\ndata:\n  .dockerconfigjson: {data}\ntype: kubernetes.io/dockerconfigjson",
        data,
    )
    password = v.password()
    yield f"docker login registry.example.com -u ci -p '{password}'", password
    token = "dckr_pat_" + v.url_safe(27)
    yield f"echo {token} | docker login -u acme --password-stdin", token


@_kind("mail")
def _mail(v: Values) -> Iterator[tuple[str, str]]:
    key = "SG." + v.url_safe(22) + "." + v.url_safe(43)
    yield f"sg = SendGridAPIClient({key!r})", key
    key = v.hex(32) + "-us14"
    yield f"mailchimp api key: {key}", key
    key = "key-" + v.hex(32)
    yield f"curl -s --user 'api:{key}' https://api.mailgun.net/v3/acme/messages", key
    password = v.password()
    yield f"server.login('robot@example.org', '{password}')", password


@_kind("twilio")
def _twilio(v: Values) -> Iterator[tuple[str, str]]:
    token = v.hex(32)
    yield f"client = Client('AC{v.hex(32)}', '{token}')", token
    token = v.hex(32)
    yield f"TWILIO_AUTH_TOKEN: {token}", token


@_kind("jwt")
def _jwt(v: Values) -> Iterator[tuple[str, str]]:
    def encode(data: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    signature = v.url_safe(43)
    token = f"{encode({'alg': 'HS256', 'typ': 'JWT'})}.{encode({'sub': v.alnum(8), 'exp': 1})}.{signature}"
    yield f"Authorization: Bearer {token}", signature
    signature = v.url_safe(86)
    yield f"token={encode({'alg': 'ES256'})}.{encode({'iss': v.word()})}.{signature} was refused", signature


@_kind("basic authorisation")
def _basic(v: Values) -> Iterator[tuple[str, str]]:
    value = base64.b64encode(f"admin:{v.password()}".encode()).decode()
    yield f"> Authorization: Basic {value}\n> Accept: */*", value
    password = v.password()
    yield f"curl -u admin:{password} https://{v.host()}/api/v1/health", password
    password = v.password()
    yield f"wget --user=bob --password='{password}' https://files.example.org/a.zip", password
    password = v.password()
    yield f"requests.get(url, auth=('deploy', '{password}'))", password


@_kind("database address")
def _database_address(v: Values) -> Iterator[tuple[str, str]]:
    password = v.plain_password()
    yield f"postgresql://app:{password}@{v.host()}:5432/shop?sslmode=require", password
    password = "$" + v.alnum(11)
    yield f"DATABASE_URL=postgres://app:{password}@{v.host()}/shop", password
    password = "%24" + v.alnum(11)
    yield f"mysql+pymysql://root:{password}@{v.host()}:3306/crm", password
    password = v.alnum(6) + "/" + v.alnum(6)
    yield f"amqp://worker:{password}@{v.host()}:5672/vhost", password
    password = v.plain_password()
    yield f"redis://:{password}@{v.host()}:6379/0", password
    password = v.plain_password()
    yield f"mongodb+srv://reader:{password}@cluster0.ab1cd.mongodb.net/?retryWrites=true", password


@_kind("connection string")
def _connection_string(v: Values) -> Iterator[tuple[str, str]]:
    password = v.password()
    yield f"Server=tcp:{v.host()},1433;Database=erp;User ID=sa;Password={password};Encrypt=true;", password
    password = v.password()
    yield f"Driver={{ODBC Driver 18 for SQL Server}};Server={v.host()};Uid=sa;Pwd={password};", password
    password = v.plain_password()
    yield f"host={v.host()} port=5432 dbname=shop user=app password={password} sslmode=disable", password
    password = v.plain_password()
    yield f"jdbc:oracle:thin:scott/{password}@//{v.host()}:1521/ORCL", password


@_kind("database shell")
def _database_shell(v: Values) -> Iterator[tuple[str, str]]:
    password = v.plain_password()
    yield f"mysql -h {v.host()} -u root -p{password} shop < dump.sql", password
    password = v.password()
    yield f"PGPASSWORD='{password}' psql -h {v.host()} -U app shop", password
    password = v.password()
    yield f"ALTER USER app WITH PASSWORD '{password}';", password
    password = v.password()
    yield f"CREATE USER 'app'@'%' IDENTIFIED BY '{password}';", password
    password = v.plain_password()
    yield f"redis-cli -h {v.host()} -a {password} ping", password


@_kind("private key")
def _private_key(v: Values) -> Iterator[tuple[str, str]]:
    for name in ("RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY"):
        lines = [v.of(_BASE64, 64) for _ in range(5)]
        yield f"-----BEGIN {name}-----\n" + "\n".join(lines) + f"\n-----END {name}-----", lines[2]
    lines = [v.of(_BASE64, 64) for _ in range(5)]
    yield (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n"
        + "\n".join(lines)
        + "\n-----END PGP PRIVATE KEY BLOCK-----",
        lines[4],
    )


@_kind("private key without its head")
def _headless_key(v: Values) -> Iterator[tuple[str, str]]:
    lines = [v.of(_BASE64, 64) for _ in range(8)]
    yield "$ tail -n 9 server.key\n" + "\n".join(lines) + "\n-----END RSA PRIVATE KEY-----", lines[3]
    lines = [v.of(_BASE64, 64) for _ in range(8)]
    yield "$ sed -n 2,8p id_rsa\n" + "\n".join(lines) + "\n", lines[4]


@_kind("command option")
def _option(v: Values) -> Iterator[tuple[str, str]]:
    password = f"{v.word()}_{v.draw.randint(2019, 2027)}"
    yield f"./manage create-admin --email a@example.org --password {password} --no-input", password
    password = v.password()
    yield f"sshpass -p '{password}' ssh deploy@{v.host()}", password
    key = v.alnum(32)
    yield f"datadog-agent install --api-key={key} --site datadoghq.eu", key
    token = v.hex(40)
    yield f"sonar-scanner -Dsonar.token={token} -Dsonar.host.url=https://sonar.example.org", token
    password = v.password()
    yield f"net use Z: \\\\fs01\\share /user:ACME\\bob {password}", password


@_kind("cookie")
def _cookie(v: Values) -> Iterator[tuple[str, str]]:
    value = v.hex(32)
    yield f"curl -b 'sessionid={value}' https://shop.example.org/account", value
    value = v.alnum(40)
    yield f"Set-Cookie: PHPSESSID={value}; Path=/; HttpOnly", value
    value = v.url_safe(48)
    yield f"Cookie: theme=dark; connect.sid=s%3A{value}; lang=en", value


@_kind("environment file")
def _environment(v: Values) -> Iterator[tuple[str, str]]:
    value = v.alnum(50)
    yield f"DEBUG=1\nDJANGO_SECRET_KEY='{value}'\nALLOWED_HOSTS=*", value
    value = v.password()
    yield f"export DB_PASS={value}", value
    value = v.alnum(40)
    yield f"API_KEY=\\\n{value}\nPORT=8080", value
    value = v.uuid()
    yield f"HEROKU_API_KEY={value}", value
    value = "0x" + v.hex(64)
    yield f"DEPLOYER_PRIVATE_KEY={value}", value


@_kind("yaml")
def _yaml(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"database:\n  user: app\n  password: {value}\n  pool: 5", value
    value = v.alnum(40)
    yield f"smtp:\n  api_key: >-\n    {value}\n  port: 587", value
    value = base64.b64encode(v.password().encode() + b"\n").decode()
    yield f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: {value}", value
    value = v.alnum(24)
    yield f"auth:\n  client-secret: |\n    {value}\n", value


@_kind("settings file")
def _settings_file(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"spring.datasource.username=app\nspring.datasource.password={value}", value
    value = v.alnum(32)
    yield f'provider "datadog" {{\n  api_key = "{value}"\n}}', value
    value = v.password()
    yield f"<server><id>nexus</id><username>ci</username><password>{value}</password></server>", value
    value = v.password()
    yield f'<add key="ClearTextPassword" value="{value}" />', value
    value = v.password()
    yield f"[web]\nhost01 ansible_user=root ansible_ssh_pass={value}", value
    value = v.plain_password()
    yield f'network={{\n  ssid="office"\n  psk="{value}"\n}}', value


@_kind("json and code")
def _json_and_code(v: Values) -> Iterator[tuple[str, str]]:
    value = v.alnum(32)
    yield json.dumps({"clientId": "web", "clientSecret": value, "scopes": ["read"]}), value
    value = v.password()
    yield f'const config = {{ user: "app", password: "{value}", max: 10 }};', value
    value = v.alnum(32)
    yield f'private static final String JWT_SECRET = "{value}";', value
    value = v.password()
    yield f"define('DB_PASSWORD', '{value}');", value
    value = v.base64(32)
    yield f'key := []byte("{value}") // encryption key', value


@_kind("password files")
def _password_files(v: Values) -> Iterator[tuple[str, str]]:
    value = v.plain_password()
    yield f"machine api.example.org login bob password {value}", value
    value = v.plain_password()
    yield f"$ cat ~/.pgpass\n{v.host()}:5432:shop:app:{value}", value
    value = "$6$" + v.alnum(8) + "$" + v.of(_ALNUM + "./", 86)
    yield f"root:{value}:19700:0:99999:7:::", value


@_kind("prompt")
def _prompt(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"Username: bob\nPassword: {value}\nWelcome!", value
    value = v.password()
    yield f"Password:\n{value}\nLogin succeeded", value
    value = v.of(string.digits, 6)
    yield f"Your verification code is {value}. It expires in 10 minutes.", value


@_kind("csv")
def _csv(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"name,email,password\nBob,bob@example.org,{value}\nEve,eve@example.org,{v.password()}", value
    value = v.alnum(32)
    yield f"service;api_key;owner\nbilling;{value};ops", value


@_kind("table")
def _table(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"| host | user | password |\n|---|---|---|\n| db1 | app | {value} |", value
    value = v.alnum(32)
    yield f"| Setting | Value |\n|---|---|\n| API key | `{value}` |\n| Region | eu |", value


@_kind("html")
def _html(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password().replace("&", "x")
    yield f'<input type="password" name="pw" value="{value}">', value
    value = v.url_safe(64)
    yield f'<input type="hidden" name="csrf_token" value="{value}">', value


@_kind("english sentence")
def _english(v: Values) -> Iterator[tuple[str, str]]:
    value = v.password()
    yield f"The password for the staging server is {value}, please do not share it.", value
    value = v.password()
    yield f"log in as admin with password {value}", value
    value = v.alnum(32)
    yield f"Here's our API key: {value}", value
    value = v.password()
    yield f"bob's pw is {value} btw", value


@_kind("other languages")
def _languages(v: Values) -> Iterator[tuple[str, str]]:
    for sentence in (
        "Das Passwort für den Testserver ist {}.",
        "La clave del servidor es {}",
        "La contraseña de la base de datos es: {}",
        "Le mot de passe est {}",
        "пароль: {}",
        "数据库的密码是{}",
        "パスワードは{}です",
        "A senha do banco é {}",
    ):
        value = v.plain_password()
        yield sentence.format(value), value


@_kind("infrastructure tokens")
def _infrastructure(v: Values) -> Iterator[tuple[str, str]]:
    for value in (
        "dop_v1_" + v.hex(64),
        "hvs." + v.url_safe(90),
        "dapi" + v.hex(32),
        "shpat_" + v.hex(32),
        "AGE-SECRET-KEY-1" + v.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
        "lin_api_" + v.alnum(40),
    ):
        yield f"I found {value} in the logs of the last run", value


@_kind("headers")
def _headers(v: Values) -> Iterator[tuple[str, str]]:
    value = v.alnum(32)
    yield f"curl -H 'X-Api-Key: {value}' https://api.example.org/v2/items", value
    value = v.alnum(40)
    yield f'headers = {{"X-Auth-Token": "{value}"}}', value


@_kind("query string")
def _query(v: Values) -> Iterator[tuple[str, str]]:
    value = v.alnum(40)
    yield f"GET /v1/me?fields=id&access_token={value}&locale=en HTTP/1.1", value
    value = v.of(string.ascii_uppercase + "234567", 32)
    yield f"otpauth://totp/ACME:bob?secret={value}&issuer=ACME", value
    value = v.hex(64)
    yield f"https://bucket.s3.amazonaws.com/k?X-Amz-Expires=600&X-Amz-Signature={value}", value


@_kind("wireguard")
def _wireguard(v: Values) -> Iterator[tuple[str, str]]:
    value = v.base64(32)
    yield f"[Interface]\nAddress = 10.0.0.2/32\nPrivateKey = {value}\nListenPort = 51820", value
    value = v.base64(32)
    yield f"[Peer]\nPublicKey = {v.base64(32)}\nPresharedKey = {value}", value


@_kind("mnemonic")
def _mnemonic(v: Values) -> Iterator[tuple[str, str]]:
    value = " ".join(v.word().lower() for _ in range(12))
    yield f'MNEMONIC="{value}"', value
    value = " ".join(v.word().lower() for _ in range(12))
    yield f"my seed phrase: {value}", value


def make_harmless(seed: int) -> list[str]:
    """Return the 80 texts in which nothing is a secret, though they look like it."""
    v = Values(seed)
    return [
        *_harmless_identifiers(v),
        *_harmless_code(v),
        *_harmless_prose(),
        *_harmless_layouts(v),
    ]


def _harmless_identifiers(v: Values) -> Iterator[str]:
    yield f"commit {v.hex(40)}\nAuthor: Bob <bob@example.org>"
    yield f"index {v.hex(7)}..{v.hex(7)} 100644"
    yield f"request_id: {v.uuid()}"
    yield f"sha256:{v.hex(64)}  app.tar.gz"
    yield f'"integrity": "sha512-{v.base64(64)}"'
    yield f"--hash=sha256:{v.hex(64)} \\"
    yield f"FROM python@sha256:{v.hex(64)}"
    yield f'ETag: "{v.hex(32)}"'
    yield f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{v.of(_BASE64, 43)} bob@laptop"
    yield f"-----BEGIN CERTIFICATE-----\n{v.of(_BASE64, 64)}\n{v.of(_BASE64, 64)}\n-----END CERTIFICATE-----"
    yield f"-----BEGIN PUBLIC KEY-----\n{v.of(_BASE64, 64)}\n{v.of(_BASE64, 64)}\n-----END PUBLIC KEY-----"
    yield f'<img src="data:image/png;base64,iVBORw0KGgo{v.of(_BASE64, 120)}=">'
    yield f"trace_id={v.hex(32)} span_id={v.hex(16)}"
    yield f"Serial number {v.of(string.ascii_uppercase, 3)}-{v.of(string.digits, 6)}, ISBN 978-0-{v.of(string.digits, 6)}-7-1"
    yield f"https://github.com/acme/site/commit/{v.hex(40)}"
    yield f"s3://bucket/{v.uuid()}/part-00000-{v.uuid()}.snappy.parquet"
    yield f"PublicKey = {v.base64(32)}"
    yield f"pod/web-{v.hex(9)}-{v.of('bcdfghjk', 5)}   1/1   Running"
    yield f"main.{v.hex(8)}.chunk.js  142.3 kB"
    yield f"toolu_{v.alnum(24)} finished; msg_{v.alnum(24)} follows"


def _harmless_code(v: Values) -> Iterator[str]:
    yield "def login(user: str, password: str) -> Session:"
    yield 'password = os.environ["DB_PASSWORD"]'
    yield "DB_PASSWORD=${DB_PASSWORD}"
    yield "api_key: <your-api-key>"
    yield "token = self.tokenizer.next_token()"
    yield "max_tokens: 4096"
    yield "secret_key = settings.SECRET_KEY"
    yield "valueFrom:\n  secretKeyRef:\n    name: db-credentials\n    key: password"
    yield "id = Column(Integer, primary_key=True)"
    yield "rows.sort(key=lambda row: row.created_at)"
    yield 'cache_key = f"user:{user_id}:profile"'
    yield "mysqldump --password-file /run/secrets/db shop"
    yield "if not check_password(password, user.password_hash):"
    yield "password: { type: String, required: true, minlength: 12 }"
    yield "curl -b cookies.txt -c cookies.txt https://example.org/"
    yield "echo $TOKEN | docker login -u acme --password-stdin"
    yield "PWD=/home/bob/project\nOLDPWD=/tmp"
    yield "const { token } = await response.json();"
    yield "from sklearn import svm  # sk-toggleable__label sk-toggleable__content"
    yield "Authorization: Bearer $ACCESS_TOKEN"
    yield "postgres://${DB_USER}:${DB_PASSWORD}@localhost:5432/app"
    yield "git@github.com:acme/site.git"
    yield "http://localhost:8080/@scope/package@1.2.3"
    yield "class PasswordResetTokenGenerator(BaseGenerator):"
    yield "test_password_is_hashed_before_it_is_stored PASSED"
    yield "export AWS_PROFILE=staging AWS_REGION=eu-central-1"
    yield "password=None, token=None, secret=None"
    yield "assert token.kind == TokenKind.IDENTIFIER"
    yield "passwd: files systemd\nshadow: files"
    yield 'Field(description="The API key to use", default=None)'


def _harmless_prose() -> Iterator[str]:
    yield "The password must be at least 12 characters long."
    yield "Das Passwort ist falsch."
    yield "La clave del problema es la memoria."
    yield "Le mot de passe est obligatoire"
    yield "пароль неверный"
    yield "密码是必填项"
    yield "パスワードは必須です"
    yield "I forgot my password: can you reset it?"
    yield "Password:\nLogin incorrect"
    yield "The key is to measure first."
    yield "The secret is out: performance matters."
    yield "Each token is a word or a part of one."
    yield "Use a token with the scope read:packages."
    yield "The API key is missing, see the documentation."
    yield "The session cookie is set by the middleware."
    yield "I changed the password field to be optional."


def _harmless_layouts(v: Values) -> Iterator[str]:
    yield "| key | action |\n|---|---|\n| Ctrl+K | clear line |\n| Ctrl+Shift+P | palette |"
    yield "name,token_count,cost\nrun1,18233,0.12\nrun2,9321,0.06"
    yield "| field | type | required |\n|---|---|---|\n| password | string | yes |\n| token | string | no |"
    yield '<input type="password" name="password" value="">'
    yield '<input type="submit" name="login" value="Continue">'
    yield '<option value="password">Password</option>'
    yield "description: >-\n  Rotates the password of every account\n  once a month."
    yield "Token:\n  IDENTIFIER = 1\n  NUMBER = 2"
    yield "secrets:\n  db_password:\n    file: ./db_password.txt"
    yield f"{v.draw.randint(10, 99)} passed, 1 skipped in 3.21s"
    yield '{"type": "object", "properties": {"password": {"type": "string"}}}'
    yield "https://api.telegram.org/bot<token>/sendMessage"
    yield f"key    count\n{v.word().lower()}    {v.draw.randint(100, 999)}"
    yield "permissions:\n  contents: read\n  id-token: write"
