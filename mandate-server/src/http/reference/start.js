// Shows the contract. The API is another host, so nothing is sent from here.
SwaggerUIBundle({
  url: "/openapi.yaml",
  dom_id: "#reference",
  deepLinking: true,
  supportedSubmitMethods: [],
  validatorUrl: null,
});
