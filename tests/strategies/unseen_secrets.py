"""The third list of secrets as people meet them: written without a look at the rules or at the lists before it.

The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_unseen_look_alikes", "make_unseen_secrets"]


def make_unseen_secrets(seed: int) -> list[BlindSecret]:
    """Returns 174 texts of 40 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_unseen_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "dotenv": (
        "APP_ENV=production\nSESSION_SECRET=⟦alnum:40⟧\nPORT=8080",
        "export STRIPE_WEBHOOK_SIGNING=whsec_⟦alnum:32⟧",
        "MAIL_PASS='⟦pw⟧'\nMAIL_HOST=smtp.example.org",
        'DJANGO_SUPERUSER_PASSWORD = "⟦short⟧"',
    ),
    "ini": (
        "[client]\nuser = root\npassword = ⟦pw⟧\n",
        "[smtp]\nuser=robot\npass=⟦short⟧\nport=587",
        "[default]\naws_access_key_id = AKIA⟪upper:16⟫\naws_secret_access_key = ⟦b64:40⟧",
        "; proxy login\nproxy_auth = deploy:⟦pw⟧",
    ),
    "toml": (
        '[registry]\ntoken = "⟦alnum:36⟧"',
        '[database]\ndsn = "postgres://app:⟦pw⟧@db.internal:5432/app"',
        "signing_key = '''⟦b64:44⟧'''",
    ),
    "yaml": (
        "auth:\n  username: svc\n  password: ⟦pw⟧\n",
        'redis:\n  requirepass: "⟦alnum:24⟧"',
        "credentials:\n  - name: nexus\n    secret: ⟦strong⟧",
        "encryption:\n  passphrase: |\n    ⟦pw⟧\n",
    ),
    "json config": (
        '{"clientId": "web", "clientSecret": "⟦url:40⟧"}',
        '{"auths":{"ghcr.io":{"auth":"⟦basic⟧"}}}',
        '{"type":"service_account","private_key_id":"⟦hex:40⟧","client_email":"a@b.iam.gserviceaccount.com"}',
        '{"smtp": {"host": "mx", "pwd": "⟦short⟧"}}',
    ),
    "properties": (
        "spring.datasource.password=⟦pw⟧",
        "javax.net.ssl.keyStorePassword=⟦short⟧",
        "sonar.login=squ_⟦hex:40⟧",
        "jasypt.encryptor.password: ⟦alnum:16⟧",
    ),
    "xml": (
        "<server><id>central</id><username>ci</username><password>⟦pw⟧</password></server>",
        '<add key="ApiSecret" value="⟦alnum:32⟧" />',
        '<property name="hibernate.connection.password">⟦short⟧</property>',
        '<machineKey validationKey="⟦HEX:64⟧" validation="SHA1" />',
    ),
    "connection string": (
        "Server=tcp:sql1,1433;Database=crm;User ID=sa;Password=⟦pw⟧;Encrypt=true;",
        "DefaultEndpointsProtocol=https;AccountName=store1;AccountKey=⟦b64:86⟧==;EndpointSuffix=core.windows.net",
        "Endpoint=sb://bus1.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=⟦b64:43⟧=",
        "Driver={PostgreSQL};Server=10.0.0.4;Uid=rep;Pwd=⟦short⟧;",
    ),
    "database url": (
        "mongodb+srv://reporter:⟦pw⟧@cluster0.ab1cd.mongodb.net/prod?retryWrites=true",
        "redis://:⟦alnum:20⟧@cache.internal:6379/0",
        "jdbc:oracle:thin:scott/⟦pw⟧@//ora1:1521/ORCL",
        "jdbc:mysql://db1/shop?user=shop&password=⟦short⟧&useSSL=true",
        "amqps://worker:⟦strong⟧@mq.example.com/vhost",
    ),
    "shell": (
        "mysql -u root -p'⟦pw⟧' -e 'show tables'",
        "PGPASSWORD=⟦pw⟧ psql -h db1 -U app -c 'select 1'",
        "sshpass -p ⟦pw⟧ ssh admin@10.1.1.1",
        "echo '⟦pw⟧' | sudo -S systemctl restart nginx",
        "redis-cli -h cache1 -a ⟦alnum:24⟧ ping",
    ),
    "shell 2": (
        "openssl enc -aes-256-cbc -in a.tar -out a.enc -k ⟦pw⟧",
        'echo "deploy:⟦pw⟧" | chpasswd',
        "ldapsearch -x -D cn=admin,dc=example,dc=org -w ⟦pw⟧ -b dc=example,dc=org",
        "htpasswd -b -c .htpasswd maria ⟦pw⟧",
        "zip -P ⟦short⟧ -r backup.zip data/",
    ),
    "curl": (
        "curl -H 'Authorization: Bearer ⟦alnum:40⟧' https://api.example.com/v1/me",
        "curl -u maria:⟦pw⟧ https://repo.example.com/artifact.jar",
        "curl -X POST -d 'grant_type=password&username=a&password=⟦short⟧' https://id.example.com/token",
        'curl -H "X-Vault-Token: hvs.⟦url:90⟧" $VAULT_ADDR/v1/secret/data/x',
        "curl --cookie 'sid=⟦alnum:32⟧' https://intra.example.com/",
    ),
    "http": (
        "GET /me HTTP/1.1\nHost: api.example.com\nX-Api-Key: ⟦alnum:32⟧\n",
        "Proxy-Authorization: Basic ⟦basic⟧",
        "Set-Cookie: connect.sid=s%3A⟦alnum:32⟧.⟦b64:43⟧; Path=/; HttpOnly",
        "< x-amz-security-token: ⟦b64:120⟧",
        "Authorization: Token ⟦hex:40⟧",
    ),
    "cloud cli": (
        "aws configure set aws_secret_access_key ⟦b64:40⟧",
        "az login --service-principal -u 1b2c -p ⟦url:34⟧ --tenant contoso",
        "gcloud sql users set-password app --instance=db1 --password=⟦pw⟧",
        "doctl auth init -t dop_v1_⟦hex:64⟧",
        "heroku config:set SECRET_TOKEN=⟦hex:64⟧ -a shop",
    ),
    "ci": (
        "env:\n  NPM_TOKEN: npm_⟦alnum:36⟧\nsteps:\n  - run: npm publish",
        'variables:\n  DEPLOY_PASS: "⟦pw⟧"\n',
        "- run: docker login -u ci -p ⟦pw⟧ registry.example.com",
        "withEnv(['SONAR_AUTH_TOKEN=⟦hex:40⟧']) { sh 'mvn sonar:sonar' }",
    ),
    "docker": (
        "ENV POSTGRES_PASSWORD ⟦pw⟧",
        "ARG GITHUB_PAT=ghp_⟦alnum:36⟧",
        "docker run -e MYSQL_ROOT_PASSWORD=⟦short⟧ -d mysql:8",
        "RUN pip install --extra-index-url https://ci:⟦alnum:30⟧@pypi.example.com/simple app",
    ),
    "kubernetes": (
        "apiVersion: v1\nkind: Secret\ndata:\n  db-pass: ⟦basic⟧\n",
        "kubectl create secret generic api --from-literal=apikey=⟦alnum:32⟧",
        "helm upgrade app ./chart --set postgresql.auth.password=⟦pw⟧",
        '        - name: JWT_SIGNING_SECRET\n          value: "⟦alnum:48⟧"',
    ),
    "terraform": (
        'variable "db_password" {\n  default = "⟦pw⟧"\n}',
        'resource "aws_db_instance" "x" {\n  username = "app"\n  password = "⟦strong⟧"\n}',
        "terraform apply -var 'admin_pass=⟦pw⟧'",
    ),
    "ansible": (
        "ansible_become_pass: ⟦pw⟧",
        "web1 ansible_host=10.0.0.3 ansible_user=ops ansible_ssh_pass=⟦short⟧",
        "- user: name=deploy update_password=always password=⟦strong⟧",
    ),
    "python": (
        'client = Client(api_key="⟦alnum:32⟧")',
        "conn = psycopg.connect(host='db', user='app', password='⟦pw⟧')",
        "app.config[\"SECRET_KEY\"] = b'⟦hex:48⟧'",
        "requests.get(url, auth=('maria', '⟦pw⟧'))",
        "os.environ['OPENAI_API_KEY'] = 'sk-⟦alnum:48⟧'",
    ),
    "javascript": (
        "const jwtSecret = `⟦alnum:32⟧`;",
        "firebase.initializeApp({ apiKey: 'AIza⟦url:35⟧', projectId: 'x' })",
        "jwt.sign({ id: 7 }, '⟦alnum:28⟧', { expiresIn: '1h' })",
        "await page.fill('#password', '⟦pw⟧')",
    ),
    "other languages": (
        'private static final String DB_PASS = "⟦pw⟧";',
        "define('AUTH_SALT', '⟦strong⟧⟦strong⟧');",
        "$mail->Password = '⟦short⟧';",
        'cfg.Passwd = "⟦pw⟧" // Go',
        'let token: &str = "⟦alnum:40⟧";',
        'new NetworkCredential("svc", "⟦pw⟧")',
    ),
    "other languages 2": (
        "ENV['SECRET_KEY_BASE'] ||= '⟦hex:128⟧'",
        "$cred = ConvertTo-SecureString '⟦pw⟧' -AsPlainText -Force",
        '(def db {:user "app" :password "⟦pw⟧"})',
        'DriverManager.getConnection("jdbc:h2:mem", "sa", "⟦pw⟧")',
        "CREATE USER app WITH ENCRYPTED PASSWORD '⟦pw⟧';",
        "ALTER USER 'root'@'localhost' IDENTIFIED BY '⟦pw⟧';",
    ),
    "logs": (
        "2026-01-04 12:00:01 DEBUG auth: login user=maria password=⟦pw⟧ ok",
        "ERROR Invalid API key provided: sk-proj-⟦url:48⟧",
        "java.sql.SQLException: cannot connect with scott/⟦pw⟧@orcl",
        "[worker] refreshed access token ⟦alnum:40⟧ (expires in 3600)",
        "KeyError: while parsing {'user': 'x', 'passwd': '⟦short⟧'}",
    ),
    "chat english": (
        "hey, the wifi password is ⟦short⟧ btw",
        "login with admin / ⟦pw⟧ on staging",
        "I've reset your password to ⟦pw⟧, please change it",
        "use this key for the API: ⟦alnum:32⟧",
        "root pw on the box: ⟦short⟧",
    ),
    "chat european": (
        "Das neue Kennwort lautet ⟦pw⟧",
        "le mot de passe du serveur est ⟦short⟧",
        "la contraseña de la base de datos es ⟦pw⟧",
        "A senha do banco é ⟦pw⟧",
        "La password del database: ⟦short⟧",
        "het wachtwoord is ⟦pw⟧",
    ),
    "chat other": (
        "пароль от сервера: ⟦pw⟧",
        "数据库密码是 ⟦pw⟧",
        "パスワードは ⟦short⟧ です",
        "비밀번호: ⟦short⟧",
        "hasło do panelu to ⟦pw⟧",
        "şifre: ⟦pw⟧",
    ),
    "tables": (
        "| host | user | password |\n|------|------|----------|\n| db1 | app | ⟦pw⟧ |",
        "name,login,passwd\nMaria,maria,⟦short⟧\n",
        "USER     PASSWORD\nmaria    ⟦pw⟧\n",
        "service\tapi_token\nbilling\t⟦alnum:32⟧\n",
    ),
    "mail": (
        "Subject: Your account\n\nUsername: maria\nTemporary password: ⟦short⟧\n",
        "Your verification code is ⟦digits:6⟧.",
        "Click https://app.example.com/reset?token=⟦url:43⟧ to reset it",
        "Zugangsdaten:\nBenutzer: maria\nKennwort: ⟦pw⟧",
    ),
    "vendor tokens": (
        "glpat-⟦url:20⟧",
        "xoxb-⟪digits:12⟫-⟪digits:12⟫-⟦alnum:24⟧",
        "SG.⟦url:22⟧.⟦url:43⟧",
        "pypi-AgEIcHlwaS5vcmc⟦url:80⟧",
        "shpat_⟦hex:32⟧",
        "hf_⟦alnum:34⟧",
    ),
    "vendor tokens 2": (
        "sk_live_⟦alnum:24⟧",
        "dckr_pat_⟦url:27⟧",
        "github_pat_⟦alnum:22⟧_⟦alnum:59⟧",
        "ya29.⟦url:80⟧",
        "lin_api_⟦alnum:40⟧",
        "sntrys_⟦url:90⟧",
    ),
    "private keys": (
        "-----BEGIN RSA PRIVATE KEY-----\n⟦pem⟧\n-----END RSA PRIVATE KEY-----",
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n⟦b64:64⟧\\n⟦b64:64⟧\\n-----END PRIVATE KEY-----\\n"',
        "[Interface]\nPrivateKey = ⟦b64:43⟧=\nAddress = 10.0.0.2/24",
        "AGE-SECRET-KEY-1⟦bech:58⟧",
    ),
    "jwt": (
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI⟦url:30⟧.⟦url:43⟧",
        "localStorage.setItem('jwt', 'eyJhbGciOiJSUzI1NiJ9.eyJpc3Mi⟦url:40⟧.⟦url:86⟧')",
    ),
    "webhooks": (
        "https://hooks.slack.com/services/T⟪upper:8⟫/B⟪upper:8⟫/⟦alnum:24⟧",
        "https://discord.com/api/webhooks/⟪digits:18⟫/⟦url:68⟧",
        "https://api.telegram.org/bot⟪digits:10⟫:⟦url:35⟧/sendMessage",
        "https://acme.webhook.office.com/webhookb2/abc/IncomingWebhook/⟦hex:32⟧/def",
    ),
    "url parameters": (
        "https://maps.example.com/js?key=⟦alnum:39⟧&callback=init",
        "https://acct.blob.core.windows.net/c/f.csv?sv=2022-11-02&sp=r&sig=⟦b64:43⟧%3D",
        "wss://stream.example.com/ws?access_token=⟦url:40⟧",
        "git clone https://oauth2:⟦alnum:26⟧@gitlab.example.com/a/b.git",
    ),
    "otp": (
        "otpauth://totp/Acme:maria?secret=⟦base32:32⟧&issuer=Acme",
        "TOTP seed: ⟦base32:32⟧",
        "backup codes: ⟦digits:4⟧-⟦digits:4⟧",
    ),
    "wallets": (
        "seed phrase: ⟦mnemonic⟧",
        "PRIVATE_KEY=0x⟦hex:64⟧",
        'mnemonic = "⟦mnemonic⟧"',
        "recovery words\n⟦mnemonic⟧",
    ),
    "licences": (
        "License key: ⟦upper:5⟧-⟦upper:5⟧-⟦upper:5⟧-⟦upper:5⟧",
        "LICENSE=⟦alnum:40⟧",
    ),
    "files of tools": (
        "machine api.example.com login maria password ⟦pw⟧",
        "//npm.example.com/:_authToken=⟦hex:36⟧",
        "db1.example.com:5432:app:maria:⟦pw⟧",
        "maria:$6$⟦alnum:8⟧$⟦alnum:86⟧:19000:0:99999:7:::",
        'network={\n  ssid="home"\n  psk="⟦short⟧"\n}',
    ),
    "network gear": (
        "username admin privilege 15 secret 0 ⟦short⟧",
        "snmp-server community ⟦alnum:12⟧ RO",
        "enable password ⟦short⟧",
        "neighbor 10.0.0.1 password ⟦short⟧",
    ),
}

_LOOK_ALIKES: tuple[str, ...] = (
    "commit ⟪hex:40⟫\nAuthor: Maria <maria@example.com>",
    "sha256:⟪hex:64⟫",
    "⟪hex:64⟫  penstock-1.2.tar.gz",
    "index ⟪hex:7⟫..⟪hex:7⟫ 100644",
    "integrity: sha512-⟪b64:86⟫==",
    '<img src="data:image/png;base64,iVBORw0KGgo⟪b64:120⟫">',
    "request id ⟪hex:8⟫-⟪hex:4⟫-4⟪hex:3⟫-a⟪hex:3⟫-⟪hex:12⟫",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI⟪b64:43⟫ maria@laptop",
    "-----BEGIN PUBLIC KEY-----\n⟪pem⟫\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\n⟪pem⟫\n-----END CERTIFICATE-----",
    "ISBN 978-3-16-148410-0",
    "version 4.18.2-rc.1+build.⟪digits:5⟫",
    "password: <your password here>",
    "API_KEY=your-api-key-here",
    "export TOKEN=$(vault kv get -field=token secret/ci)",
    "password = os.environ['DB_PASSWORD']",
    "password: ${{ secrets.DB_PASSWORD }}",
    "DB_PASSWORD={{ db_password }}",
    "token = get_token(session)",
    "const password = req.body.password;",
    "if (!password) throw new Error('password required');",
    "The password must be at least 12 characters long.",
    "max_tokens: 4096",
    '"usage": {"prompt_tokens": 1234, "completion_tokens": 567}',
    "token_count=182736",
    '<div id="root-⟪lower:8⟫" class="css-1⟪lower:6⟫">',
    "call +49 170 1234567 for help",
    "price: 1,299.00 EUR",
    "build 20260104.3 finished in 182 s",
    "/usr/lib/python3.12/site-packages/cryptography/hazmat/primitives/asymmetric/rsa.py",
    "primary key: customer_id",
    "foreign key (order_id) references orders(id)",
    "key: Enter",
    '<input type="password" name="password" placeholder="Password">',
    "SECRET_KEY is read from the environment",
    "see docs/secrets.md for how we rotate keys",
    "enum TokenType { ACCESS_TOKEN, REFRESH_TOKEN }",
    "Authorization: Bearer <token>",
    "curl -H 'Authorization: Bearer $TOKEN' https://api.example.com",
    'curl -u "$USER:$PASS" https://example.com',
    "postgres://user:password@localhost/db",
    "mysql -u root -p mydb",
    "git push -u origin feature/login-password-reset",
    "passwd: password updated successfully",
    "docker login -u ci --password-stdin registry.example.com",
    "password_hash = bcrypt.hashpw(pw, salt)",
    "def verify_token(token: str, *, leeway: int = 10) -> Claims:",
    "assert response.json()['token_type'] == 'bearer'",
    'etag: "⟪hex:32⟫"',
    "x-request-id: ⟪hex:32⟫",
    "traceparent: 00-⟪hex:32⟫-⟪hex:16⟫-01",
    "md5sum: ⟪hex:32⟫",
    "container ⟪hex:12⟫ exited with code 137",
    "pod/web-⟪hex:9⟫-x7k2p 1/1 Running",
    "arn:aws:iam::⟪digits:12⟫:role/deploy-role",
    "vpc-0⟪hex:16⟫ subnet-0⟪hex:16⟫",
    'resource "aws_secretsmanager_secret" "db" { name = "prod/db/password" }',
    "secretKeyRef:\n  name: db-credentials\n  key: password",
    "La contraseña es obligatoria",
    "Das Passwort ist falsch",
    "le mot de passe est incorrect",
    "пароль неверный, попробуйте ещё раз",
    "密码是必填项",
    "the password is stored in 1Password",
    "the password was changed yesterday",
    "token is expired, please log in again",
    "| column | type |\n|---|---|\n| password | varchar(255) |\n| token | text |",
    "name,type,nullable\npassword,text,false\n",
    "public_key: ⟪b64:43⟫=",
    "fingerprint SHA256:⟪b64:43⟫",
    "cache key: build-linux-x64-node20-⟪hex:16⟫",
    "idempotency_key=order-2026-⟪digits:6⟫",
    "sort_key=created_at partition_key=tenant_id",
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    "pass: 128 fail: 0 skip: 3",
    "passed=41 failed=2 password_tests=7",
    "secret santa is on 12 December at Maria's",
    "ssh -i ~/.ssh/id_ed25519 deploy@10.0.0.3 uptime",
    "Lorem-Ipsum-Dolor-Sit-Amet-2026-Edition",
    "order no. ⟪digits:10⟫, tracking 1Z⟪upper:16⟫",
)
