/** The environment whose keys are accepted. `sandbox` is no real money. */
export type Environment = 'production' | 'sandbox' | 'any';

/** Where nonces that were accepted are kept. */
export interface NonceStore {
  /**
   * Claims a nonce: true if it was not claimed before, false if it was. Of any number of calls with one nonce exactly one gives
   * true. The entry must be kept through `until`, in milliseconds since 1970. Throws, or rejects, if the store cannot answer.
   */
  claim(issuer: string, nonce: string, until: number, now: number): boolean | Promise<boolean>;
}

export interface TokenOptions {
  /** The issuer that the token must name, character for character. */
  issuer: string;
  /** The issuer's keys. Left out: its published key set, which all calls share. Text, bytes or an object: a key set that you have. */
  keys?: PublishedKeys | KeySet | string | Uint8Array | { keys: object[] };
  /** The time by which the token must be valid. Left out: now. */
  now?: Date | number | (() => Date | number);
  /** How far the two clocks may differ, in seconds: 0 to 30. Left out: 0. */
  leewaySeconds?: number;
  /** Left out: `production`. */
  environment?: Environment;
  /** Claims the nonce (for an event, its id), as the last check. `elsewhere`: you do that yourself. */
  nonces?: NonceStore | 'elsewhere';
}

export interface VerdictOptions extends TokenOptions {
  /** The amount of the order, such as `40.50`: a string, since a number is not exact. */
  amount?: string;
  /** The currency of the order, such as `USD`. */
  currency?: string;
  /** Who is paid, such as `vendor:acme`. */
  recipient?: string;
  /** The mandate, if it matters to you. */
  mandate?: string;
  /** Take a verdict of which not everything was compared. */
  signatureOnly?: boolean;
}

/** One check, as a line for a person. */
export interface Check {
  check: string;
  status: 'passed' | 'not_compared' | 'noted' | 'failed';
  value: string;
}

export interface VerdictClaims {
  iss: string;
  jti: string;
  iat: number;
  exp: number;
  verdict: 'allow';
  mandate?: string;
  policy_version: string;
  nonce: string;
  /** `amount` has at most 15 digits, so that it is exact here. Do not compute with it. */
  request: { agent: string; amount: number; currency: string; recipient: string; category: string };
  [claim: string]: unknown;
}

export interface EventClaims {
  iss: string;
  jti: string;
  iat: number;
  type: string;
  data: { [name: string]: unknown };
  [claim: string]: unknown;
}

/** A verdict that is valid now. */
export interface Verdict {
  answer: string;
  /** What was not compared, of all that an order has: `amount`, `currency`, `recipient`, `nonce`. */
  notCompared: string[];
  checks: Check[];
  /** No real money may move. */
  isSandbox: boolean;
  claims: VerdictClaims;
  /** The signed amount, exactly. */
  amount: string;
  nonce: string;
  error?: undefined;
}

/** An event that the service has signed. */
export interface Event {
  answer: string;
  checks: Check[];
  isSandbox: boolean;
  claims: EventClaims;
  /** The event's id, the same in every attempt to deliver it. */
  id: string;
  error?: undefined;
}

/** A refusal, as a report. */
export interface Refused {
  answer: 'DO NOT DELIVER';
  checks: Check[];
  isSandbox: boolean;
  claims?: undefined;
  error: MandateError;
}

/** An escrow's contract. `amount` has at most 15 digits, so that it is exact here. Do not compute with it. */
export interface Contract {
  contract: string;
  state: string;
  disputed: boolean;
  amount: number;
  currency: string;
  buyer: string;
  seller: string;
  arbiter?: string;
  condition: string;
  refund_after: string;
  history: { state: string; disputed: boolean; at: string; note?: string }[];
  created_at: string;
  [member: string]: unknown;
}

/** A contract that the service has signed, as it was at `iat`. */
export interface SignedContract {
  kid: string;
  isSandbox: boolean;
  claims: { iss: string; iat: number; contract: Contract; [claim: string]: unknown };
}

/** A checkpoint of the log that has the decision. */
export interface Proved {
  origin: string;
  size: number;
  index: number;
  root: string;
  witnesses: { name: string; at: number }[];
}

export interface Limits {
  currency: string;
  per_transaction: number;
  per_month?: number;
}

export interface Terms {
  principal: string;
  agent: string;
  limits: Limits;
  categories: string[];
  expires: string;
  review_above?: number;
  escrow?: { required_above: number };
}

export interface Question {
  /** A mandate's terms, or a mandate as the API shows it. Left out: the agent has none. */
  mandate?: Terms & { [name: string]: unknown };
  /** What the agent did before. */
  basis: { spent: number; recent_requests: number };
  request: { agent: string; amount: number; currency: string; recipient: string; category: string };
  /** In milliseconds since 1970. */
  now: number;
  /** A person has approved the request: velocity and review threshold are waived. */
  approval?: boolean;
}

export interface Decided {
  verdict: string;
  denials: string[];
  reason?: string;
}

/** Verifies a verdict that is about to be settled. Rejects unless it matches the order and its nonce is new. */
export function verifyVerdict(token: string, options: VerdictOptions): Promise<Verdict>;
/** The report on a verdict, for a person. */
export function checkVerdict(token: string, options: VerdictOptions): Promise<Verdict | Refused>;
/** Verifies the body of a webhook's request. Rejects with the error of the check that failed. */
export function verifyEvent(token: string, options: TokenOptions): Promise<Event>;
/** The report on an event, for a person. */
export function checkEvent(token: string, options: TokenOptions): Promise<Event | Refused>;
/** Verifies the signed contract of an escrow. Rejects with the error of the check that failed. */
export function verifyContract(
  token: string,
  options: Pick<TokenOptions, 'issuer' | 'keys' | 'environment'>,
): Promise<SignedContract>;
/**
 * Verifies that the public log has the token's decision. `logKey` is the log's key, which you have pinned; `policy` the text of
 * a policy of witnesses. One of them must be there.
 */
export function verifyProof(
  token: string,
  proof: string | Uint8Array,
  options: { logKey?: string; policy?: string },
): Promise<Proved>;
/** Decides on a request as the service does. As JSON text, amounts keep their digits. */
export function evaluate(question: Question | string): Promise<Decided>;

/** Takes the WebAssembly from elsewhere than the file beside the package's modules. */
export function useCore(give: () => URL | Response | BufferSource | WebAssembly.Module | Promise<Response>): void;

/** Keys that you have. They do not age. */
export class KeySet {
  constructor(document: string | Uint8Array | { keys: object[] });
}

/** The keys that an issuer publishes: fetched, kept for as long as it allows, bounded. */
export class PublishedKeys {
  constructor(issuer: string, options?: { url?: string; fetch?: typeof fetch; clock?: () => number });
}

/** Nonces in memory, for one process. */
export class MemoryNonces implements NonceStore {
  constructor(options?: { most?: number; clock?: () => number });
  claim(issuer: string, nonce: string, until: number, now: number): boolean;
  readonly size: number;
}

/** Why something is refused. Never deliver on it. */
export class MandateError extends Error {
  /** The number of the `mandate` command's exit code of the same name. */
  readonly exitCode: number;
  /** The check that failed; undefined if none could be made. */
  readonly check?: string;
  /** All checks up to the one that failed. */
  readonly checks?: Check[];
}
export class UsageError extends MandateError {}
export class IoError extends MandateError {}
export class MalformedTokenError extends MandateError {}
export class SignatureError extends MandateError {}
export class ExpiredError extends MandateError {}
export class NotYetValidError extends MandateError {}
export class IssuerError extends MandateError {}
export class WrongKindError extends MandateError {}
export class NotAllowedError extends MandateError {}
export class MismatchError extends MandateError {}
export class ReplayedError extends MandateError {}
export class KeySetError extends MandateError {}
export class SandboxError extends MandateError {}
export class NotComparedError extends MandateError {}
export class NotProvedError extends MandateError {}
export class InvalidRequestError extends MandateError {}
