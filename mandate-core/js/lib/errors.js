// The errors. Each has the name and number of an exit code of the `mandate` command.

/** Why something is refused. Never deliver on it. */
export class MandateError extends Error {
  /** The number of the command's exit code. */
  static exitCode = 1;

  /**
   * @param {string} message
   * @param {object} [details] `check`, the check that failed, and `checks`, all up to it
   */
  constructor(message, { check, checks, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = this.constructor.name;
    this.exitCode = this.constructor.exitCode;
    /** The name of the check that failed; undefined if none could be made. */
    this.check = check;
    /** All checks up to the one that failed, if any was made. */
    this.checks = checks;
  }
}

/** The options cannot be used. Nothing was checked. */
export class UsageError extends MandateError { static exitCode = 2; }
/** The nonce store cannot tell whether this is a replay. */
export class IoError extends MandateError { static exitCode = 3; }
/** The token is not a well-formed token. */
export class MalformedTokenError extends MandateError { static exitCode = 10; }
/** The signature does not verify, or the key set lacks the key that the token names. */
export class SignatureError extends MandateError { static exitCode = 11; }
/** The verdict has expired. */
export class ExpiredError extends MandateError { static exitCode = 12; }
/** The token was issued in the future. */
export class NotYetValidError extends MandateError { static exitCode = 13; }
/** Another issuer than the one expected. */
export class IssuerError extends MandateError { static exitCode = 14; }
/** A signed token of another kind, such as an event. */
export class WrongKindError extends MandateError { static exitCode = 15; }
/** The verdict is another than `allow`. */
export class NotAllowedError extends MandateError { static exitCode = 16; }
/** Amount, currency, recipient or mandate differ from what was expected. */
export class MismatchError extends MandateError { static exitCode = 17; }
/** The nonce was presented before. */
export class ReplayedError extends MandateError { static exitCode = 18; }
/** The key set cannot be fetched or is not one. */
export class KeySetError extends MandateError { static exitCode = 19; }
/** A key of the other environment has signed: of a sandbox, where none is accepted. */
export class SandboxError extends MandateError { static exitCode = 22; }
/** The signature is valid, but not everything that an order has was compared. */
export class NotComparedError extends MandateError { static exitCode = 26; }
/** The proof does not prove that the decision is in the log. */
export class NotProvedError extends MandateError { static exitCode = 51; }
/** The policy engine cannot read what it was asked. */
export class InvalidRequestError extends MandateError { static exitCode = 30; }

const BY_EXIT = {
  Usage: UsageError,
  Io: IoError,
  MalformedToken: MalformedTokenError,
  Signature: SignatureError,
  Expired: ExpiredError,
  NotYetValid: NotYetValidError,
  Issuer: IssuerError,
  WrongKind: WrongKindError,
  NotAllowed: NotAllowedError,
  Mismatch: MismatchError,
  Replayed: ReplayedError,
  KeySet: KeySetError,
  Sandbox: SandboxError,
  NotCompared: NotComparedError,
  NotProved: NotProvedError,
  InvalidRequest: InvalidRequestError,
};

/** The error of a refusal as the core gives it. */
export function errorOf({ exit, message, check }, details) {
  const Kind = BY_EXIT[exit] ?? MandateError;
  return new Kind(message, { check, ...details });
}

/** Refuses a name that is no option: a mistyped one would otherwise not be compared. */
export function takeOnly(options, known) {
  if (options === null || typeof options !== 'object') {
    throw new UsageError('options must be an object');
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new UsageError(`${name} is no option; there are ${known.join(', ')}`);
    }
  }
}
