"""The fourth list: other kinds and wordings than the third, and passwords of more makes, written before its first run.

The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_later_look_alikes", "make_later_secrets"]


def make_later_secrets(seed: int) -> list[BlindSecret]:
    """Returns 164 texts of 40 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_later_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "compose": (
        "services:\n  db:\n    environment:\n      - MARIADB_PASSWORD=⟦leet⟧\n      - TZ=UTC",
        "    environment:\n      KEYCLOAK_ADMIN_PASSWORD: ⟦year⟧\n",
        "    command: redis-server --requirepass ⟦drawn⟧",
        "      RABBITMQ_DEFAULT_PASS: ⟦passphrase⟧",
    ),
    "systemd": (
        '[Service]\nEnvironment="API_TOKEN=⟦alnum:32⟧"\nExecStart=/usr/bin/app',
        "Environment=DB_PASS=⟦leet⟧",
        "ExecStart=/usr/bin/agent --token ⟦url:36⟧ --url https://x.example.com",
    ),
    "web servers": (
        'proxy_set_header Authorization "Bearer ⟦alnum:36⟧";',
        "SetEnv MAILGUN_KEY ⟦hex:32⟧",
        "basicauth / maria ⟦leet⟧",
    ),
    "nix and lua": (
        'services.vaultwarden.config.adminToken = "⟦b64:48⟧";',
        'local password = "⟦leet⟧"',
        "ngx.req.set_header('X-Secret', '⟦alnum:24⟧')",
    ),
    "hcl": (
        'provider "datadog" {\n  api_key = "⟦hex:32⟧"\n  app_key = "⟦hex:40⟧"\n}',
        'auth_token = "⟦url:40⟧"',
        'connection {\n  type = "ssh"\n  password = "⟦passphrase⟧"\n}',
    ),
    "powershell": (
        "$env:ARM_CLIENT_SECRET = '⟦url:40⟧'",
        'New-LocalUser -Name svc -Password (ConvertTo-SecureString "⟦leet⟧" -AsPlainText -Force)',
        "Invoke-RestMethod -Headers @{ 'api-key' = '⟦hex:32⟧' } -Uri $u",
        "net user helpdesk ⟦leet⟧ /add",
    ),
    "windows": (
        "reg add HKLM\\Software\\App /v Password /t REG_SZ /d ⟦leet⟧ /f",
        '"DefaultPassword"="⟦year⟧"',
        "cmdkey /add:srv1 /user:corp\\maria /pass:⟦leet⟧",
        "schtasks /create /tn job /tr a.bat /ru corp\\svc /rp ⟦leet⟧",
    ),
    "go": (
        'var apiSecret = []byte("⟦alnum:32⟧")',
        'dsn := "app:⟦leet⟧@tcp(127.0.0.1:3306)/shop?parseTime=true"',
        'client := redis.NewClient(&redis.Options{Addr: "c:6379", Password: "⟦drawn⟧"})',
        'req.SetBasicAuth("maria", "⟦leet⟧")',
    ),
    "rust": (
        'let secret = b"⟦alnum:32⟧";',
        '.basic_auth("maria", Some("⟦leet⟧"))',
        'const API_KEY: &\'static str = "⟦alnum:40⟧";',
    ),
    "kotlin and swift": (
        'private const val MAPS_KEY = "⟦alnum:39⟧"',
        'let password: String = "⟦leet⟧"',
        'storePassword "⟦year⟧"\nkeyAlias "upload"\nkeyPassword "⟦year⟧"',
    ),
    "c and c++": (
        '#define WIFI_PASS "⟦leet⟧"',
        'static const char *kToken = "⟦alnum:32⟧";',
        'curl_easy_setopt(curl, CURLOPT_USERPWD, "maria:⟦leet⟧");',
        'WiFi.begin("home", "⟦year⟧");',
    ),
    "c#": (
        'options.ClientSecret = "⟦url:40⟧";',
        'builder.Configuration["Jwt:Key"] = "⟦alnum:44⟧";',
        'new SqlConnection(@"Data Source=.;Initial Catalog=crm;User Id=sa;Password=⟦leet⟧");',
    ),
    "php": (
        "'password' => '⟦leet⟧',",
        "$pdo = new PDO('mysql:host=db;dbname=a', 'app', '⟦leet⟧');",
        "define( 'NONCE_KEY', '⟦strong⟧⟦strong⟧' );",
        "mysqli_connect('db', 'app', '⟦drawn⟧', 'shop');",
    ),
    "ruby": (
        "config.secret_key = '⟦hex:128⟧'",
        "Net::SSH.start('h', 'u', password: '⟦leet⟧')",
        "Stripe.api_key = 'sk_test_⟦alnum:24⟧'",
    ),
    "java": (
        'props.setProperty("password", "⟦leet⟧");',
        '@Value("${jwt.secret:⟦alnum:40⟧}")',
        '.withCredentials("maria", "⟦leet⟧")',
        'new UsernamePasswordCredentials("svc", "⟦drawn⟧")',
    ),
    "python again": (
        "ssh.connect('10.0.0.4', username='ops', password='⟦leet⟧')",
        "fernet = Fernet(b'⟦url:43⟧=')",
        "smtp.login('bot@example.com', '⟦leet⟧')",
        "engine = create_engine('postgresql+psycopg://app:⟦passphrase⟧@db/app')",
        "HEADERS = {'Ocp-Apim-Subscription-Key': '⟦hex:32⟧'}",
    ),
    "node again": (
        "app.use(session({ secret: '⟦leet⟧', resave: false }))",
        "const client = new MongoClient('mongodb://root:⟦leet⟧@mongo:27017')",
        'process.env.TWILIO_AUTH_TOKEN = "⟦hex:32⟧"',
        "crypto.createHmac('sha256', '⟦alnum:32⟧')",
    ),
    "tests": (
        "cy.get('[name=password]').type('⟦leet⟧{enter}')",
        "driver.find_element(By.ID, 'pwd').send_keys('⟦leet⟧')",
        'When I fill in "Password" with "⟦leet⟧"',
    ),
    "sql": (
        "INSERT INTO users (login, password) VALUES ('maria', '⟦leet⟧');",
        "UPDATE accounts SET api_token = '⟦alnum:40⟧' WHERE id = 7;",
        "CREATE LOGIN app WITH PASSWORD = N'⟦leet⟧';",
        "SELECT dblink_connect('host=h user=u password=⟦drawn⟧');",
    ),
    "shell again": (
        "read -s PW <<< '⟦leet⟧'",
        "kinit maria@CORP <<< ⟦leet⟧",
        "gpg --batch --passphrase ⟦passphrase⟧ -d f.gpg",
        "wget --http-user=m --http-password=⟦leet⟧ https://x.example.com/f",
        "smbclient //srv/share -U maria%⟦leet⟧",
    ),
    "shell logins": (
        'expect "password:" { send "⟦leet⟧\\r" }',
        "$ su - postgres\nPassword: ⟦leet⟧\n",
        "mongosh --host db -u root -p ⟦leet⟧ --authenticationDatabase admin",
        "lftp -u maria,⟦leet⟧ sftp://files.example.com",
    ),
    "cloud again": (
        "gh auth login --with-token <<< gho_⟦alnum:36⟧",
        "vault kv put secret/db password=⟦leet⟧",
        "aws secretsmanager put-secret-value --secret-id db --secret-string '⟦leet⟧'",
        "az keyvault secret set --vault-name v --name db --value ⟦drawn⟧",
        "fly secrets set COOKIE_PW=⟦alnum:32⟧",
    ),
    "responses": (
        '{"access_token":"⟦url:60⟧","token_type":"Bearer","expires_in":3600}',
        '{"AccessKeyId":"ASIA⟪upper:16⟫","SecretAccessKey":"⟦b64:40⟧","SessionToken":"⟦b64:200⟧"}',
        '{"refresh_token": "⟦url:50⟧", "scope": "mail"}',
        "<AuthToken>⟦alnum:40⟧</AuthToken>",
    ),
    "http again": (
        "x-auth-token: ⟦hex:32⟧",
        "PRIVATE-TOKEN: ⟦url:20⟧",
        "Cookie: JSESSIONID=⟦HEX:32⟧; theme=dark",
        "Authorization: ApiKey ⟦alnum:40⟧",
        "X-Shopify-Access-Token: ⟦hex:32⟧",
    ),
    "httpie and postman": (
        "http -a maria:⟦leet⟧ GET example.com/me",
        '{"key": "apiKey", "value": "⟦alnum:36⟧", "type": "string"}',
        "grpcurl -H 'x-token: ⟦alnum:32⟧' host:443 list",
    ),
    "logs again": (
        'level=info msg="generated admin password" password=⟦drawn⟧',
        "Generated root password: ⟦drawn⟧",
        "WARN using default secret ⟦alnum:32⟧ for signing",
        "A temporary password is generated for root@localhost: ⟦strong⟧",
        "Initial admin password is ⟦hex:32⟧",
    ),
    "notes": (
        "router: admin/⟦leet⟧",
        "Staging → user: maria, pw: ⟦year⟧",
        "VPN: maria // ⟦leet⟧",
        "* Jenkins - admin - ⟦leet⟧",
    ),
    "chat again": (
        "can you ssh in? it's ops@10.0.0.4, pass ⟦leet⟧",
        "my api key's ⟦alnum:36⟧, don't share",
        "just paste ⟦leet⟧ when it asks for the password",
        "the new one is ⟦leet⟧ (password for grafana)",
        "creds: maria:⟦leet⟧",
    ),
    "chat in other languages": (
        "Passwort für den Drucker: ⟦leet⟧",
        "Kannst du dich mit dem Kennwort ⟦leet⟧ anmelden?",
        "Mon mot de passe, c'est ⟦leet⟧",
        "La clave del wifi es ⟦year⟧",
        "La chiave API è ⟦alnum:32⟧",
        "Lösenordet är ⟦leet⟧",
    ),
    "chat beyond latin": (
        "Мой пароль ⟦leet⟧, зайди сам",
        "密码：⟦leet⟧",
        "登录密码为⟦leet⟧，请勿外传",
        "管理者パスワード：⟦year⟧",
        "كلمة المرور: ⟦leet⟧",
        "पासवर्ड: ⟦leet⟧",
    ),
    "tables again": (
        "| service | api key |\n|:--|:--|\n| maps | ⟦alnum:39⟧ |",
        "user;password;role\nmaria;⟦leet⟧;admin\n",
        " id | login | passwd \n----+-------+--------\n  1 | maria | ⟦leet⟧\n",
        "<tr><td>Password</td><td>⟦leet⟧</td></tr>",
        "NAME      TOKEN\nrunner    ⟦alnum:32⟧\n",
    ),
    "issued tokens": (
        "gsk_⟦alnum:52⟧",
        "tvly-dev-⟦alnum:32⟧",
        "rpa_⟦upper:40⟧",
        "figd_⟦url:40⟧",
        "NRAK-⟦upper:27⟧",
        "atlasv1 token: ⟦alnum:14⟧.atlasv1.⟦alnum:60⟧",
    ),
    "issued tokens 2": (
        "xapp-1-A⟪upper:10⟫-⟪digits:13⟫-⟦hex:64⟧",
        "sk-ant-api03-⟦url:93⟧AA",
        "pscale_tkn_⟦url:43⟧",
        "r8_⟦alnum:37⟧",
        "dapi⟦hex:32⟧",
        "phx_⟦alnum:43⟧",
    ),
    "keys again": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\n⟦pem⟧\n-----END OPENSSH PRIVATE KEY-----",
        "ssh_key: |\n  -----BEGIN EC PRIVATE KEY-----\n  ⟦b64:64⟧\n  -----END EC PRIVATE KEY-----",
        "PresharedKey = ⟦b64:43⟧=",
        "<RSAKeyValue><Modulus>abc</Modulus><D>⟦b64:120⟧</D></RSAKeyValue>",
    ),
    "addresses": (
        "ftp://maria:⟦leet⟧@files.example.com/pub",
        "smtp+tls://bot%40example.com:⟦drawn⟧@mail.example.com:587",
        "https://⟦hex:32⟧@o1.ingest.sentry.io/42",
        "rtsp://admin:⟦leet⟧@10.0.0.9:554/stream1",
        "https://example.com/invite/accept?invitation_token=⟦url:22⟧",
    ),
    "hooks": (
        "https://hooks.zapier.com/hooks/catch/⟪digits:7⟫/⟦lower:7⟧⟦lower:8⟧/",
        "https://outlook.office.com/webhook/⟪hex:8⟫/IncomingWebhook/⟦hex:32⟧/x",
        "https://chat.googleapis.com/v1/spaces/AAAA/messages?key=AIza⟦url:35⟧&token=⟦url:43⟧",
    ),
    "two factors": (
        "Enter this setup key in your authenticator app: ⟦base32:16⟧",
        "JBSW secret for 2FA ⟦base32:32⟧",
        "Your one-time passcode: ⟦digits:6⟧",
    ),
    "wallets again": (
        "My wallet backup: ⟦mnemonic⟧",
        "ETH_PRIVATE_KEY=⟦hex:64⟧",
        "wif: 5⟦base58:50⟧",
        "xprv⟦base58:107⟧",
    ),
    "cookies and sessions": (
        "document.cookie = 'session=⟦alnum:40⟧'",
        "sessionid\t⟦lower:32⟧\texample.com",
        "PHPSESSID=⟦lower:26⟧",
    ),
    "devices": (
        "set system root-authentication plain-text-password-value ⟦leet⟧",
        "crypto isakmp key ⟦leet⟧ address 10.0.0.1",
        "wpa_passphrase=⟦year⟧",
        "tacacs-server key ⟦drawn⟧",
        "ppp chap secret ⟦leet⟧",
    ),
}

_LOOK_ALIKES: tuple[str, ...] = (
    "Merge commit '⟪hex:40⟫' into main",
    "go.sum: github.com/x/y v1.2.3 h1:⟪b64:43⟫=",
    '"resolved": "https://npm.example.com/a/-/a-1.0.0.tgz#⟪hex:40⟫"',
    "digest: sha256:⟪hex:64⟫",
    'ETag: W/"⟪hex:27⟫"',
    "session 3 of 12: passwords and how to hash them",
    "Password requirements: 8+ characters, 1 digit, 1 symbol",
    "password_min_length: 12",
    "PasswordHasher(time_cost=3, memory_cost=65536)",
    "test_password_reset_v2 PASSED [ 45%]",
    "tests/auth/test_token_refresh.py::test_expired[case-12] PASSED",
    "password field #2 is empty",
    "the token limit is 128000",
    "used 15234 tokens in 3 calls",
    "tokens/s: 83.2",
    "key=value pairs are parsed first",
    "KeyError: 'user_2024'",
    '{"key": "ArrowLeft", "code": 37}',
    "PRIMARY KEY (id), KEY idx_login_2 (login)",
    'public static final String TOKEN_HEADER = "X-Auth-Token";',
    "const TOKEN_URL = 'https://id.example.com/oauth2/v2.0/token';",
    "secretName: app-tls-2026",
    "secrets:\n  - db_password\n  - api_key",
    "password: !vault |",
    "password: \"{{ lookup('env', 'DB_PASSWORD') }}\"",
    "password = var.db_password",
    "password = getpass.getpass('Password: ')",
    "PASSWORD=$(openssl rand -base64 24)",
    'PASSWORD="$(cat /run/secrets/db_password)"',
    "export AWS_PROFILE=prod-2 AWS_REGION=eu-central-1",
    "--password-file /etc/app/password.txt",
    "--token-ttl 3600",
    "Authorization: Bearer YOUR_TOKEN_HERE",
    "Authorization: Basic <credentials>",
    'api_key: "<API_KEY>"',
    "sk-xxxxxxxxxxxxxxxxxxxxxxxx",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "password: ********",
    "pwd: /home/maria/projects/app2",
    "$ pwd\n/srv/www/site-2026",
    "login: 2026-01-04T12:00:01Z from 10.0.0.4",
    "login page v2.1.3 deployed to eu-west-1",
    "log in to server web-12 and restart nginx",
    "admin panel moved to port 8443",
    "root@web-01:~# uptime",
    "root cause: issue #4521 in parser2",
    "auth service build 1842 is green",
    "auth-service-7d9f8b6c5-x2x9k 1/1 Running",
    "sign(x) returns -1, 0 or 1",
    "connect('db-primary-01', 5432)",
    "grep -P '^[a-z]{3,}[0-9]+$' names.txt",
    "sort -k 2,2n file | head -5",
    "ssh -p 2222 deploy@bastion-01",
    "mkdir -p build/release-1.4.2",
    "docker run -p 8080:80 -w /app2 node:20",
    "git checkout -b fix/password-reset-123",
    "see issue #123 about the password prompt in v2.3.1",
    "RFC 7519 defines the JSON web token",
    "CVE-2024-12345: password leak in libfoo 1.2.3",
    "License: Apache-2.0",
    "serial: 2026010401",
    "Product code: 4006381333931",
    '<input id="pw1" type="password" autocomplete="new-password" minlength="12">',
    ".password-input-2 { color: #a1b2c3; margin: 4px }",
    "i18n: login.password.label_2 = Passwort",
    "Das Passwort muss 8 bis 64 Zeichen lang sein",
    "Le mot de passe doit contenir 12 caractères",
    "La contraseña debe tener 8 caracteres",
    "密码长度为8到16位",
    "パスワードは8文字以上です",
    "trace_id=⟪hex:32⟫ span_id=⟪hex:16⟫",
    "call_⟪alnum:24⟫ returned 3 rows",
    '{"id": "msg_01⟪alnum:22⟫", "role": "assistant", "usage": {"input_tokens": 812}}',
    "chatcmpl-⟪alnum:29⟫",
    "data:font/woff2;base64,d09GMgAB⟪b64:90⟫",
    "https://www.youtube.com/watch?v=⟪url:11⟫&t=42",
    "https://docs.google.com/document/d/1⟪url:43⟫/edit",
    "bitcoin:bc1q⟪lower:38⟫",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB⟪b64:120⟫ ci@host",
    "IBAN DE89 3704 0044 0532 0130 00",
)
