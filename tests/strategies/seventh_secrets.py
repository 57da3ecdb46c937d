"""The seventh list: consoles, devices, builds, databases, mail and talk in several languages, written before its first run.

The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_seventh_look_alikes", "make_seventh_secrets"]


def make_seventh_secrets(seed: int) -> list[BlindSecret]:
    """Returns 155 texts of 40 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_seventh_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "network devices": (
        "username netops privilege 15 secret 0 ⟦leet⟧",
        "enable secret 5 $1$⟦alnum:8⟧$⟦alnum:22⟧",
        "snmp-server community ⟦drawn⟧ RO",
        "set system root-authentication plain-text-password-value ⟦marked⟧",
    ),
    "wireless": (
        'network={\n    ssid="warehouse-5G"\n    psk="⟦camel⟧"\n}',
        "nmcli dev wifi connect Lobby password ⟦leet⟧",
        "WIFI:T:WPA;S:Guests;P:⟦pw⟧;;",
        "wpa_passphrase=⟦passphrase⟧",
    ),
    "vpn": (
        "[Interface]\nPrivateKey = ⟦b64:43⟧=\nAddress = 10.8.0.2/32",
        "PresharedKey = ⟦b64:43⟧=",
        "echo '⟦strong⟧' | openconnect --passwd-on-stdin vpn.example.org",
        ': PSK "⟦alnum:24⟧"',
    ),
    "mysql": (
        "mysqldump -h db1 -u backup -p⟦pw⟧ shop > shop.sql",
        "ALTER USER 'app'@'%' IDENTIFIED BY '⟦marked⟧';",
        "[client]\nuser=backup\npassword=⟦strong⟧\n",
        "GRANT ALL ON shop.* TO 'app'@'10.%' IDENTIFIED BY '⟦camel⟧';",
    ),
    "postgres": (
        "db1.internal:5432:shop:app:⟦pw⟧",
        "CREATE ROLE reporting LOGIN PASSWORD '⟦leet⟧' VALID UNTIL '2027-01-01';",
        'psql "host=db1 port=5432 dbname=shop user=app password=⟦drawn⟧ sslmode=require"',
        "PGPASSWORD=⟦marked⟧ pg_restore -d shop dump.bin",
    ),
    "other databases": (
        'mongosh "mongodb+srv://app:⟦alnum:16⟧@cluster0.ab1cd.mongodb.net/shop"',
        "redis-cli -h cache -a ⟦strong⟧ --no-auth-warning ping",
        "Server=tcp:sql1.database.windows.net;User ID=app;Password=⟦marked⟧;Encrypt=yes;",
        "cqlsh -u cassandra -p ⟦pw⟧ 10.0.0.4",
    ),
    "queues": (
        "amqps://worker:⟦drawn⟧@mq.example.org:5671/jobs",
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="⟦camel⟧";',
        "nats --user ops --password ⟦pw⟧ sub 'orders.>'",
    ),
    "spring": (
        "spring.datasource.password=⟦marked⟧",
        "spring:\n  mail:\n    username: robot\n    password: ⟦leet⟧\n",
        "server.ssl.key-store-password=⟦pw⟧",
        "jwt.secret: ⟦b64:44⟧",
    ),
    "php": (
        "define('DB_PASSWORD', '⟦strong⟧');",
        "define( 'LOGGED_IN_KEY', '⟦b64:64⟧' );",
        "'password' => env('DB_PASSWORD', '⟦pw⟧'),",
        "$mail->Password = '⟦leet⟧';",
    ),
    "ruby": (
        "  secret_key_base: ⟦hex:128⟧",
        'Stripe.api_key = "sk_live_⟦alnum:24⟧"',
        "config.action_mailer.smtp_settings = { user_name: 'robot', password: '⟦camel⟧' }",
    ),
    "python": (
        'SECRET_KEY = "django-insecure-⟦alnum:50⟧"',
        'requests.get(url, auth=("deploy", "⟦pw⟧"))',
        'openai.api_key = "sk-proj-⟦url:48⟧"',
        'paramiko.SSHClient().connect("10.1.2.3", username="root", password="⟦marked⟧")',
        'token = os.environ.get("SLACK_TOKEN", "xoxb-⟪digits:12⟫-⟪digits:12⟫-⟦alnum:24⟧")',
    ),
    "javascript": (
        "const client = new Client({ user: 'app', host: 'db1', password: '⟦leet⟧', port: 5432 })",
        'headers: { "X-Api-Key": "⟦alnum:40⟧", Accept: "application/json" }',
        "export const STRIPE_WEBHOOK_SECRET = 'whsec_⟦alnum:32⟧'",
        "session({ secret: '⟦passphrase⟧', resave: false })",
    ),
    "dotnet": (
        '"ConnectionStrings": { "Main": "Host=db1;Database=shop;Username=app;Password=⟦strong⟧" }',
        'dotnet user-secrets set "Smtp:Password" "⟦pw⟧"',
        '<add key="ServiceBusKey" value="⟦b64:43⟧=" />',
        'new NetworkCredential("robot", "⟦camel⟧")',
    ),
    "java": (
        'DriverManager.getConnection("jdbc:mysql://db1/shop", "app", "⟦marked⟧")',
        "keytool -importkeystore -srckeystore a.p12 -srcstorepass ⟦pw⟧ -destkeystore b.jks -deststorepass ⟦leet⟧",
        "<server><id>releases</id><username>ci</username><password>⟦drawn⟧</password></server>",
        "signing.keyId=24875D73\nsigning.password=⟦strong⟧\n",
    ),
    "android": (
        "storePassword=⟦pw⟧\nkeyPassword=⟦leet⟧\nkeyAlias=upload",
        '"current_key": "AIza⟦url:35⟧"',
        "jarsigner -storepass ⟦marked⟧ -keystore release.jks app.apk upload",
    ),
    "apple": (
        'FASTLANE_APPLE_APPLICATION_SPECIFIC_PASSWORD="⟦lower:4⟧-⟦lower:4⟧-⟦lower:4⟧-⟦lower:4⟧"',
        "xcrun notarytool submit app.zip --apple-id dev@example.org --team-id 8KXW2ABCDE --password ⟦drawn⟧",
        "security import cert.p12 -k build.keychain -P ⟦pw⟧ -T /usr/bin/codesign",
    ),
    "docker": (
        "docker run -d -e MYSQL_ROOT_PASSWORD=⟦camel⟧ -p 3306:3306 mysql:8",
        "docker login registry.example.org -u ci -p ⟦url:32⟧",
        '{"auths":{"registry.example.org":{"auth":"⟦basic⟧"}}}',
        "    environment:\n      - POSTGRES_PASSWORD=⟦leet⟧\n      - TZ=UTC\n",
    ),
    "github actions": (
        "  env:\n    NPM_TOKEN: npm_⟦alnum:36⟧\n",
        "git clone https://x-access-token:ghs_⟦alnum:36⟧@github.com/acme/app.git",
        "gh secret set DEPLOY_KEY --body '⟦strong⟧'",
        "echo ::add-mask::⟦alnum:32⟧",
    ),
    "gitlab": (
        'curl --header "PRIVATE-TOKEN: glpat-⟦url:20⟧" https://gitlab.example.org/api/v4/projects',
        "gitlab-runner register --registration-token GR1348941⟦url:20⟧",
        "CI_DEPLOY_PASSWORD: ⟦drawn⟧",
    ),
    "jenkins": (
        "withCredentials: using JENKINS_API_TOKEN 11⟦hex:32⟧",
        "java -jar jenkins-cli.jar -auth admin:⟦pw⟧ list-jobs",
        "Please use the following password to proceed to installation:\n\n⟦hex:32⟧\n",
    ),
    "ansible": (
        "ansible_become_password: ⟦marked⟧",
        "ansible-playbook site.yml -e 'db_admin_pw=⟦pw⟧'",
        "web1 ansible_host=10.0.0.7 ansible_user=root ansible_ssh_pass=⟦leet⟧",
    ),
    "aws": (
        "aws_secret_access_key = ⟦b64:40⟧",
        "export AWS_SESSION_TOKEN=FwoGZXIvYXdzE⟦b64:160⟧",
        '"SecretAccessKey": "⟦b64:40⟧",',
        'aws secretsmanager put-secret-value --secret-id prod/db --secret-string \'{"password":"⟦strong⟧"}\'',
    ),
    "google cloud": (
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n⟦b64:64⟧\\n⟦b64:64⟧\\n-----END PRIVATE KEY-----\\n",',
        "access_token: ya29.⟦url:120⟧",
        '"client_secret": "GOCSPX-⟦url:28⟧"',
        "gcloud sql users set-password app --instance=shop --password=⟦pw⟧",
    ),
    "azure": (
        "AccountName=shopfiles;AccountKey=⟦b64:86⟧==;EndpointSuffix=core.windows.net",
        "az login --service-principal -u 8d1c1f6e-0b1e-4f6e-9d2b-2f1f0b7f0c11 -p ⟦alnum:3⟧8Q~⟦url:34⟧ --tenant contoso",
        "https://shopfiles.blob.core.windows.net/in/a.csv?sv=2022-11-02&se=2027-01-01&sr=b&sp=r&sig=⟦alnum:43⟧%3D",
    ),
    "other clouds": (
        "doctl auth init -t dop_v1_⟦hex:64⟧",
        "CLOUDFLARE_API_TOKEN=⟦url:40⟧ wrangler deploy",
        "heroku config:set SENDGRID_API_KEY=SG.⟦url:22⟧.⟦url:43⟧",
        "flyctl secrets set SESSION_SECRET=⟦hex:64⟧",
    ),
    "model providers": (
        "export ANTHROPIC_API_KEY=sk-ant-api03-⟦url:86⟧AA",
        "huggingface-cli login --token hf_⟦alnum:34⟧",
        "GROQ_API_KEY: gsk_⟦alnum:52⟧",
        "Authorization: Bearer ⟦hex:64⟧",
    ),
    "monitoring": (
        "DD_API_KEY=⟦hex:32⟧ datadog-agent run",
        "https://⟦hex:32⟧@o12345.ingest.sentry.io/4501",
        "license_key: eu01xx⟦hex:34⟧",
        "grafana-cli admin reset-admin-password ⟦pw⟧",
    ),
    "chat services": (
        "https://hooks.slack.com/services/T0⟪upper:8⟫/B0⟪upper:8⟫/⟦alnum:24⟧",
        "https://discord.com/api/webhooks/⟪digits:18⟫/⟦url:68⟧",
        "bot = telebot.TeleBot('⟪digits:10⟫:AA⟦url:33⟧')",
    ),
    "payments": (
        "rk_live_⟦alnum:40⟧ is the restricted key of the billing job",
        'paypalrestsdk.configure({"mode": "live", "client_id": "⟪url:40⟫", "client_secret": "⟦url:40⟧"})',
        "SQUARE_ACCESS_TOKEN=EAAA⟦url:60⟧",
    ),
    "shell": (
        "sshpass -p '⟦leet⟧' scp backup.tgz root@10.0.0.5:/srv/",
        'echo "root:⟦camel⟧" | chpasswd',
        "openssl enc -aes-256-cbc -pbkdf2 -in a.tar -out a.enc -k ⟦pw⟧",
        "unzip -P ⟦marked⟧ invoices.zip",
        "gpg --batch --passphrase '⟦passphrase⟧' -d secrets.gpg",
        "read -s PW <<< '⟦strong⟧'",
    ),
    "curl": (
        "curl -u elastic:⟦drawn⟧ https://es1:9200/_cat/indices",
        "curl -H 'X-Auth-Token: ⟦url:40⟧' https://api.example.org/v2/hosts",
        "curl -X POST https://id.example.org/token -d 'grant_type=password&username=ana&password=⟦pw⟧'",
        "wget --user=ana --password='⟦leet⟧' https://files.example.org/a.iso",
    ),
    "windows": (
        "net use Z: \\\\nas\\share /user:corp\\ana ⟦marked⟧",
        'ConvertTo-SecureString "⟦camel⟧" -AsPlainText -Force',
        "cmdkey /add:srv1 /user:admin /pass:⟦pw⟧",
        "schtasks /create /tn nightly /tr job.exe /ru corp\\svc /rp ⟦leet⟧",
    ),
    "http logs": (
        "POST /login HTTP/1.1\nHost: shop\n\nuser=ana&passwd=⟦pw⟧&remember=1",
        "Set-Cookie: sessionid=⟦lower:32⟧; HttpOnly; Path=/",
        "GET /reset?reset_token=⟦url:43⟧ 200 12ms",
        "authorization: Basic ⟦basic⟧",
        "GET /callback?code=⟪url:30⟫&id_token=eyJhbGciOiJSUzI1NiJ9.eyJ⟦url:60⟧.⟦url:86⟧",
    ),
    "html and xml": (
        '<input type="password" name="pw" value="⟦leet⟧">',
        '<property name="hibernate.connection.password">⟦drawn⟧</property>',
        '<wsse:Password Type="PasswordText">⟦pw⟧</wsse:Password>',
    ),
    "tables": (
        "| host | user | password |\n|------|------|----------|\n| nas1 | ana | ⟦leet⟧ |\n| nas2 | ben | ⟦pw⟧ |\n",
        "user;kennwort;rolle\nana;⟦camel⟧;admin\n",
        "HOST   LOGIN  PASSWORD\nnas1   ana    ⟦marked⟧\n",
    ),
    "english talk": (
        "The admin password for the staging box is ⟦pw⟧, please don't post it anywhere.",
        "I changed my router login yesterday, it's now admin / ⟦leet⟧",
        "use my key ⟦alnum:40⟧ for the weather api",
        "Credentials: ana@example.org / ⟦camel⟧",
        "you can log in with ana and ⟦marked⟧ as the password",
    ),
    "german and french talk": (
        "Das neue Kennwort lautet ⟦leet⟧.",
        "Zugangsdaten: Benutzer ana, Passwort ⟦pw⟧",
        "Le mot de passe du serveur est ⟦camel⟧",
        "Voici la clé secrète : ⟦alnum:32⟧",
    ),
    "other languages": (
        "La contraseña del wifi es ⟦leet⟧",
        "Пароль от базы: ⟦pw⟧",
        "パスワードは ⟦camel⟧ です",
        "数据库密码：⟦marked⟧",
        "A senha do servidor é ⟦pw⟧",
        "Hasło do bazy danych to ⟦leet⟧",
    ),
    "one-time and recovery": (
        "Scan failed? Enter this setup key: ⟦base32:32⟧",
        "Recovery codes:\n⟦lower:5⟧-⟦lower:5⟧\n⟦lower:5⟧-⟦lower:5⟧\n",
        "Your verification code is ⟦digits:6⟧",
        "wallet seed phrase: ⟦mnemonic⟧",
    ),
    "keys on disk": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\n⟦pem⟧\n-----END OPENSSH PRIVATE KEY-----",
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 3\n⟦pem⟧\n",
        "AGE-SECRET-KEY-1⟦bech:58⟧",
        "//npm.example.com/:_authToken=⟦hex:8⟧-⟦hex:4⟧-⟦hex:4⟧-⟦hex:4⟧-⟦hex:12⟧",
    ),
}

_LOOK_ALIKES = (
    "commit ⟪hex:40⟫ (HEAD -> main, origin/main)",
    "sha256:⟪hex:64⟫",
    'integrity="sha512-⟪b64:86⟫=="',
    'ETag: "⟪hex:32⟫"',
    "traceparent: 00-⟪hex:32⟫-⟪hex:16⟫-01",
    "request id ⟪hex:8⟫-⟪hex:4⟫-⟪hex:4⟫-⟪hex:4⟫-⟪hex:12⟫ failed after 3 retries",
    "order 7⟪digits:9⟫ was shipped on 2026-03-04",
    "const passwordInput = document.querySelector('#password');",
    "if (!user.checkPassword(candidate)) return res.status(401).end();",
    "def reset_password(user: User, new_password: str) -> None:",
    "password: str = Field(min_length=8, max_length=64)",
    "PASSWORD_HASHERS = ['django.contrib.auth.hashers.Argon2PasswordHasher']",
    "the token bucket refills at 20 tokens per second",
    "max_tokens=4096, temperature=0.2",
    "prompt_tokens: 12841, completion_tokens: 381",
    "Unexpected token '}' at line 41 of parser.js",
    "tokenizer = AutoTokenizer.from_pretrained('gpt2')",
    "the primary key of orders is (tenant_id, order_no)",
    "KeyError: 'user_id'",
    "key=lambda row: (row.date, row.amount)",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI⟪b64:43⟫ ana@laptop",
    "ssh-keygen -t ed25519 -f ~/.ssh/deploy_key -N ''",
    "-----BEGIN CERTIFICATE-----\n⟪pem⟫\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n⟪pem⟫\n-----END PUBLIC KEY-----",
    "The password must have at least 12 characters, one digit and one symbol.",
    "Forgot your password? Click here to reset it.",
    "Bitte geben Sie Ihr Passwort ein, um fortzufahren.",
    "Le mot de passe doit contenir au moins huit caractères.",
    "La contraseña no coincide.",
    "密码错误，请重试。",
    "Неверный пароль",
    "export DB_PASSWORD=$(pass show prod/db)",
    "password: ${{ secrets.DB_PASSWORD }}",
    "password = var.db_password",
    'password: "{{ vault_db_password }}"',
    "PASSWORD=${PASSWORD:?must be set}",
    "process.env.API_KEY ?? throwMissing('API_KEY')",
    "API_KEY=<your key here>",
    "api_key: your-api-key",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "curl -u user:password https://example.org",
    "docker login -u ci --password-stdin < token.txt",
    "mysql -u root -p shop",
    "psql postgresql://localhost:5432/shop",
    "redis://cache:6379/0",
    "git remote add origin git@github.com:acme/app.git",
    "https://example.org/docs/authentication/api-keys#rotating-a-key",
    "/home/ana/.ssh/id_ed25519: Permission denied",
    "src/auth/token_refresh_middleware_test.go:118: want 3, got 2",
    "test_login_with_wrong_password_returns_401 PASSED",
    "FAIL TestTokenExpiry/after_24h (0.31s)",
    "secret santa draws take place on 12/18",
    "SecretName: prod-db-credentials",
    "secretKeyRef:\n  name: db\n  key: password\n",
    "kubectl get secret db -o jsonpath='{.data.password}'",
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf",
    "arn:aws:iam::123456789012:role/deploy",
    "AWS_REGION=eu-central-1 AWS_PROFILE=staging terraform plan",
    "vault kv get -field=password secret/prod/db",
    "passphrase is not cached, asking the agent",
    "pwd=/srv/app/current",
    'cd "$OLDPWD" && pwd',
    "postcode 10115, phone +49 30 901820",
    "IBAN DE89370400440532013000",
    "version 2.14.0-rc.3+build.⟪hex:7⟫",
    "data:image/png;base64,iVBORw0KGgo⟪b64:80⟫",
    "exit code 137 (OOMKilled), restart count 4",
    "the pin connector has 24 pins; pin 17 is ground",
    "pin numpy==1.26.4 because 2.x breaks the build",
    'auth.py:42: error: Incompatible return value type (got "str | None", expected "Token")',
    "SELECT id, password_hash FROM users WHERE email = $1",
    "UPDATE users SET password_changed_at = now() WHERE id = 4121",
    "credential helper 'osxkeychain' is not a git command",
    '"csrf_exempt": true, "token_endpoint": "https://id.example.org/oauth/token"',
    "oauth scopes: read:user, repo:status, offline_access",
    "Cookie policy: we use cookies to improve your visit.",
    "session 8f3a: 214 turns, 3 compactions",
    "The key insight is that latency is dominated by the handshake.",
    "license: Apache-2.0, key contributors: 14",
)
